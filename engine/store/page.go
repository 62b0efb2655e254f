package store

import (
	"fmt"
	"math"
	"slices"
	"time"

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

// Within is a bound of when runs were created, as every database can compare it:
// one that lies before all runs, or after them, stays so. Zero stays zero.
func Within(at time.Time) time.Time {
	first, end := time.Unix(0, 0).UTC(), noEnd
	switch {
	case at.IsZero():
		return at
	case at.Before(first):
		return first
	case at.After(end):
		return end
	}
	return at
}

// Page is p with its bounds written out, as every database can compare them.
// Errors: X_JOB_PAGE_INVALID, X_INVALID for a verb that there is not.
func (p AuditParams) Page() (AuditParams, error) {
	var err error
	if p.Limit, err = PageLimit(p.Limit); err != nil {
		return p, err
	}
	if p.Verb != "" && !slices.Contains(AuditVerbs, p.Verb) {
		return p, &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("%s is no verb of the audit", job.Quote(string(p.Verb))), Fix: fmt.Sprintf("name one of %v", AuditVerbs)}
	}
	switch {
	case p.Before < 0:
		return p, &abi.Error{Code: job.CodePageInvalid, Message: fmt.Sprintf("a page of entries before %d", p.Before), Fix: "use the last id of the page before"}
	case p.Before == 0:
		p.Before = math.MaxInt64
	}
	if p.Until.IsZero() {
		p.Until = noEnd
	}
	p.Since, p.Until = Within(p.Since), Within(p.Until)
	if p.Since.IsZero() {
		p.Since = time.Unix(0, 0).UTC()
	}
	return p, nil
}

// noEnd is after all instants that are kept.
var noEnd = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)

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
