package outbox

import "time"

// Published is the event that a staged row is published as.
var Published = event

// BePatient has relays wait for their outbox, however slow the machine is. It is
// for before any relay begins.
func BePatient() { claimTimeout, settleTimeout = time.Hour, time.Hour }
