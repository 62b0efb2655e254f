package store

import (
	"fmt"
	"math"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// Sizes of a page of any listing.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// PageLimit is how many entries a page has for which so many were asked; 0 asks
// for DefaultPage. Errors: X_JOB_PAGE_INVALID.
func PageLimit(asked int) (int, error) {
	switch {
	case asked == 0:
		return DefaultPage, nil
	case asked < 0 || asked > MaxPage:
		return 0, &abi.Error{Code: job.CodePageInvalid, Message: fmt.Sprintf("a page of %d entries", asked), Fix: fmt.Sprintf("ask for 1 to %d", MaxPage)}
	}
	return asked, nil
}

// Page is p with its bounds written out. Errors: X_JOB_PAGE_INVALID.
func (p ListEventsParams) Page() (ListEventsParams, error) {
	if p.Limit == 0 {
		p.Limit = DefaultPage
	}
	if p.Limit < 0 || p.Limit > MaxPage || p.Before < 0 {
		return p, &abi.Error{
			Code:    job.CodePageInvalid,
			Message: fmt.Sprintf("a page of %d events before %d", p.Limit, p.Before),
			Fix:     fmt.Sprintf("ask for 1 to %d, before an event's number", MaxPage),
		}
	}
	if p.Before == 0 {
		p.Before = math.MaxInt64
	}
	return p, nil
}
