// Package app is the composition root: the only room that sees the engine and
// the host at once. It turns a jobs.toml into a running process: manifest,
// store, host, loaded modules, deployment, engine. Serving, trying one job,
// benchmarks and end-to-end tests are put together here, from the same parts.
//
// What it does not do: read flags or print (package cli), decide anything
// about a run (package engine) or look into a module (package host).
//
// # One load path
//
// Load reads the manifest, loads every module it names in parallel and checks
// that each job's handler is there. It answers all problems at once or a
// Loaded that holds them. `validate` stops after it, `serve` goes on, and a reload
// is a second Load whose result replaces the first only when it has no problem.
//
// # Module copies
//
// A run stays on the module it started on, also when the file was replaced
// meanwhile and the process restarted. So every module that is loaded is first
// copied into data_dir/modules under its digest, and a run pinned to a digest
// that the manifest no longer names is served from there.
package app
