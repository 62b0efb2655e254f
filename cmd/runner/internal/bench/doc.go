// Package bench measures what this machine does with the runner as it is
// served: how fast runs are inserted and worked off, how fast steps are made
// durable, and how soon a handler starts after its run was enqueued.
//
// It owns the workload and the arithmetic. What it measures is an app.Server on
// a database of its own, nothing simplified; the figures come from the store's
// own records, except the latency, which ends when the guest's first log line
// arrives.
package bench
