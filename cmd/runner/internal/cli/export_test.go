package cli

import "time"

// BePatient has commands wait for their spans to be sent, however slow the machine
// is. It is for before any command runs.
func BePatient() { tracePatience = time.Hour }
