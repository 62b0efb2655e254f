package outbox

import "time"

// BePatient has relays wait for their outbox, however slow the machine is. It is
// for before any relay begins.
func BePatient() { claimTimeout, settleTimeout = time.Hour, time.Hour }
