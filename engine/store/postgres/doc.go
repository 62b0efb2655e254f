// Package postgres keeps a fleet's runs in one schema of a Postgres database. It
// owns the statements, the schema and its migrations, and the translation of
// the server's errors; it holds no policy. What each method means is stated in
// package store and pinned by storetest.
package postgres
