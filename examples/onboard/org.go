package main

import (
	"errors"

	"github.com/jobrunner/runner/abi/guest"
)

// seats of each plan.
var seats = map[string]int{"trial": 3, "team": 25, "enterprise": 500}

// provision stands for a call to whatever makes an organisation. Such a call
// should be idempotent, by the organisation's id: a worker that dies after it
// and before the step is recorded makes the next attempt call it again.
func provision(in Input) (Org, error) {
	n, ok := seats[in.Plan]
	if !ok {
		// No retry will make the plan known, so the run fails at once. The fix
		// is what the caller may be told.
		return Org{}, guest.Terminal(guest.Coded("X_PLAN_UNKNOWN",
			guest.WithFix(errors.New("there is no plan "+in.Plan), "use trial, team or enterprise")))
	}
	return Org{ID: in.OrgID, URL: "https://" + in.OrgID + ".example.com", Seats: n}, nil
}
