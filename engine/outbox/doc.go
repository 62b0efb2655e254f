// Package outbox is the relay: it turns rows that an application staged in its
// own database and transaction into runs, through the one enqueue path. It owns
// when and in which order; what a row may become is decided by package queue,
// and how rows are kept by the store.
//
// # A pass
//
//	claim ──► enqueue each ──► settle ──► (again at once if there was something)
//	            │  refused: parked as rejected, with code and reason
//	            └─ the store is away: what was answered is settled,
//	               the rest is released at once, in order
//
// The row's id is the run's. So a relay may die at any point: a row that was
// published but not settled is claimed again, by the next relay after the lease
// or by this one at once, and inserts nothing the second time. What bounds this
// is the run's retention: a relay that stops for longer than a run takes from its
// claim to its deletion would make it twice. It does not publish after its own
// lease, so only a write that was on its way can come that late.
//
// # Order
//
// A relay publishes in the order of staging, and does not pass over a row whose
// outcome is open: an error that concerns one row and that nobody foresaw stops
// the relay there, visibly, rather than have later rows overtake it. Only rows
// that cannot be accepted as they are stand aside. Two relays on one outbox
// publish each row once, and each in order; between them there is none.
package outbox
