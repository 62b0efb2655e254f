// Package enginetest has what tests of the engine share: guests that are Go
// functions, manifests and requests made from a few words, and a store whose
// answers can be delayed, lost or refused. Its users test from x_test packages.
package enginetest
