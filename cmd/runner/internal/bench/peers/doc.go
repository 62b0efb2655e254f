// Command peers measures the runner, and other systems of its kind, in turn on
// one Postgres server:
//
//	RUNNER_DATABASE_URL=postgres://… go run ./cmd/runner/internal/bench/peers -runner bin/runner -peers DIR
//
// An absolute figure says more about a machine than about a program, and two
// figures of different days say nothing. So everything is measured several
// times in one sitting, one after the other in changing order, each time in a
// new database of the same server; what counts is the ratio of the medians.
//
// DIR holds a folder for each peer, whose program does the same work as `runner
// bench` the way its users would, and prints what it measured. They are read
// from a copy, built with Go and npm. A peer that is not there, cannot be built
// or fails is named with the reason, and the others are measured.
//
//	river      go, main.go      -url URL -n JOBS
//	graphile   npm, bench.mjs   URL JOBS
//	dbos       go, main.go      -url URL -n RUNS -steps 5 -c 50
package main
