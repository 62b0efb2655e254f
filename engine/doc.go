// Package engine is the facade of the durable queue: a Client that enqueues,
// reads and operates, and an Engine that also runs what is due. Both take a
// store as a value and import no driver; neither knows what a guest is made of.
//
//	db := …                            // a store.Store
//	e, err := engine.New(engine.Config{Store: db, Deployment: deployment})
//	err = e.Start(ctx)
//	run, err := e.Client().Enqueue(ctx, engine.Request{Job: "welcome", Input: input})
//	done, err := e.Client().Wait(ctx, run.ID)
//	err = e.Drain(ctx)
//
// A program that only enqueues uses NewClient and starts nothing.
//
// The rooms behind it: queue (the one enqueue path, batched writes), step (one
// attempt's memory), deploy (what is served), worker (slots, leases, attempts),
// manifest and retry (declarations and decisions as values), store (what a
// database must promise).
package engine
