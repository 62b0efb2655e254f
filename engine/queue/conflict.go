package queue

import (
	"fmt"
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// ConflictError is inside the X_JOB_DUPLICATE of a call with several requests.
type ConflictError struct {
	Conflicts []Conflict // all of them, by index
}

// Conflict is a request with OnConflict Fail that another run stands for.
type Conflict struct {
	Index int
	// Holder is the live run that holds the key, or the run that has the
	// request's own ID; "" if it is an earlier request of the same call, whose
	// index is Before then.
	Holder string
	Before int
}

func (c Conflict) String() string {
	if c.Holder == "" {
		return fmt.Sprintf("entry %d by entry %d", c.Index, c.Before)
	}
	return fmt.Sprintf("entry %d by run %s", c.Index, c.Holder)
}

// maxConflicts bounds what a message lists.
const maxConflicts = 20

func (e *ConflictError) Error() string {
	var b strings.Builder
	for i, c := range e.Conflicts {
		if i == maxConflicts {
			fmt.Fprintf(&b, " and %d more", len(e.Conflicts)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c.String())
	}
	return b.String()
}

// conflicts reports the requests with OnConflict Fail that answers say are
// other runs'. Nil if there are none.
func conflicts(requests []Request, prepared []store.EnqueueParams, answers []store.EnqueueResult) error {
	var found []Conflict
	var own map[string]int // the call's own runs, by id
	for i := range answers {
		if requests[i].OnConflict != Fail || !result(&requests[i], &prepared[i], answers[i]).Deduped {
			continue
		}
		if own == nil {
			own = make(map[string]int, len(answers))
			for k := range answers {
				if !result(&requests[k], &prepared[k], answers[k]).Deduped {
					own[answers[k].ID] = k
				}
			}
		}
		c := Conflict{Index: i, Holder: answers[i].ID}
		if before, ok := own[c.Holder]; ok {
			c.Holder, c.Before = "", before
		}
		found = append(found, c)
	}
	if found == nil {
		return nil
	}
	if len(requests) == 1 {
		return duplicate(prepared[0].Job, found[0].Holder)
	}
	e := &ConflictError{found}
	return &abi.Error{
		Code:    job.CodeDuplicate,
		Message: fmt.Sprintf("%d of %d entries are taken: %s", len(found), len(requests), e),
		Fix:     "leave them out, wait for the runs that stand for them, or enqueue under other keys",
		Err:     e,
	}
}

func duplicate(jobName, holder string) error {
	return &abi.Error{
		Code:    job.CodeDuplicate,
		Message: fmt.Sprintf("a live run of job %q holds the key: %s", jobName, holder),
		Fix:     "wait for it, cancel it, or enqueue under another key",
	}
}
