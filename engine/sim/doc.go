// Package sim is the simulator: it runs whole engines, schedulers, clients and
// operators on the real embedded store in virtual time, lets a seed decide the
// order of every database operation and of every misfortune, and checks after
// each commit, and at the end, what no order may break.
//
// It holds tests only. It owns the schedule of a simulation, the faults between
// a process and its database, and the account of what was promised; what the
// operations themselves do is the engine's and the store's, of which nothing is
// replaced. See docs/simulation.md.
package sim
