// Package outbox stages runs in an application's own Postgres database, inside
// the application's transactions, for a relay to publish. It owns the functions
// enqueue and publish and their table, their migrations, and the statements of a relay; it
// needs no queue in that database, and holds no policy: what may be published
// is decided by engine/queue, when is decided by engine/outbox.
//
// An application stages with SQL (`select runner.enqueue('job', '{…}')`) or, in
// Go, with EnqueueTx, which calls the same function. A relay opens a DB.
//
// # What a long transaction costs
//
// A row is written three times: staged, claimed, settled. While some snapshot
// in the database stays open, perhaps a report that runs for an hour, the dead
// versions and their index entries cannot go, and a claim that began its search
// at the first row ever staged would step over all of them. So a DB remembers how
// far the table was dealt with a while ago, begins there, and looks at the rest
// every ten seconds, for rows of transactions that committed late. See floor.
package outbox
