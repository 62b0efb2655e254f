// Package sqlite keeps a runner's runs in one SQLite file, or in memory. It owns
// the statements, the schema and its migrations, and the translation of driver
// errors; it holds no policy. What each method means is stated in package store
// and pinned by storetest.
//
// # One writer, commits in groups
//
//	callers ──▶ pending ops ──▶ writer goroutine: BEGIN, op, op, op …, COMMIT (fsync)
//	   ▲                                                                │
//	   └──────────────── answers, after the commit ◀────────────────────┘
//
// Every write is an op. The writer takes whatever is waiting, runs it in one
// transaction and answers when the commit is on disk. At low load an op commits
// at once; under load groups form while the previous commit is being synced. No
// timer is involved. An op that fails takes nobody along: the group is rolled
// back and each op runs again alone, so ops change nothing outside the database
// before their commit.
//
// Reads go to a small pool of connections and see the latest commit. A database
// in memory has one connection, so its reads are ops too.
//
// # Durability
//
// Files run in WAL mode and an answered write has been synced. The exception is
// a claim, which is answered first and synced with the next write, or within 20
// ms: a power cut that takes it back takes its worker too. Several processes may use one file; the one that claims runs holds
// the lock of LockServe.
//
// # Layout
//
// Live and finished runs share a table. What keeps claims fast among millions of
// finished runs is that every index a claim reads holds live runs only.
// Large inputs live apart from their row, so that a change of state does not
// rewrite them. Finished runs are counted per queue as they finish.
package sqlite
