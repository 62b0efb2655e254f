// Package limit decides, from values alone, which waiting runs a claim may take:
// concurrency, rates, pauses, and turns between tenants. It reads no database:
// a store gathers what is running, asks, and writes the answer in the claim's
// own transaction. Both stores ask the same questions here, so that a limit
// means the same in each.
//
// # Gates
//
// A gate is what runs of one limit pass one after another, named by a text that
// never changes shape, since two builds share a database during a deploy:
//
//	job:NAME           concurrency of a job
//	job-key:NAME:KEY   concurrency of a job for one key
//	rate:NAME          starts of a job in a time
//	pause:NAME         a job that is paused
//
// A run that finds its gate full is set aside behind it, where no claim meets it
// again until the gate may have room. Who holds a gate is not counted anywhere:
// the runs that are running under it are its holders, so a slot cannot leak, and
// whatever ends a run frees what it held.
//
// What limits a tenant or a queue needs no gate: a claim goes from tenant to
// tenant anyway, and passes over one that may have no more.
package limit
