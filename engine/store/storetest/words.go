package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Column is one whose words are a closed set, which the database itself knows.
type Column struct {
	Table, Column string
	Where         string // of some of its rows; "" is all
	Words         []string
}

// The words of what a build writes, for the Columns of a store.
var (
	WaitingStates  = []string{"ready", "delayed", "suspended"}
	FinishedStates = []string{"done", "failed", "dead", "cancelled"}
	StepColumns    = []Column{
		{Table: "steps", Column: "status", Words: words(job.StepStarted, job.StepCompleted, job.StepFailed, job.StepRetrying,
			job.StepSleeping, job.StepWaiting, job.StepTimedOut)},
		{Table: "steps", Column: "kind", Words: words(job.KindStep, job.KindUndoable, job.KindSleep, job.KindEnqueue, job.KindPublish,
			job.KindWait, job.KindInvoke, job.KindUnwind, job.KindCompensation)},
		{Table: "attempts", Column: "outcome", Words: words(job.Completed, job.Slept, job.Retried, job.DeadLettered, job.Dropped,
			job.Interrupted, job.Deferred, job.Shed, job.Unwinding, job.Undone, job.Refused, job.Orphaned)},
		{Table: "pauses", Column: "kind", Words: words(store.PauseQueue, store.PauseJob, store.PauseTenant)},
	}
)

func words[T ~string](of ...T) (out []string) {
	for _, w := range of {
		out = append(out, string(w))
	}
	return out
}

// RunWords checks that the database takes the words of its columns and no others,
// whoever writes them. set writes a word to the rows of a column.
func RunWords(t *testing.T, open Factory, columns []Column, set func(db DB, c Column, word string) error) {
	e := newEnv(t, open)
	r := e.start("w", store.EnqueueParams{})
	e.saveStep(store.StepParams{Ref: refOf(r), Name: "s", Kind: job.KindStep, Status: job.StepCompleted})
	e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Delayed, Delay: time.Hour})
	e.add(store.EnqueueParams{})
	e.finish(e.claimOne("w"), job.Completed, job.Done)
	e.pause(store.PauseQueue, queueA)
	for _, c := range columns {
		for _, w := range c.Words {
			if err := set(e.db, c, w); err != nil {
				t.Errorf("%s.%s takes no %q: %v", c.Table, c.Column, w, err)
			}
		}
		for _, w := range []string{"hibernating", "", c.Words[0] + " ", "DONE"} {
			if err := set(e.db, c, w); err == nil {
				t.Errorf("%s.%s takes %q", c.Table, c.Column, w)
			}
		}
	}
	// The rows are as they were, or found by a listing all the same.
	got, err := e.db.List(e.ctx, store.ListParams{})
	if err != nil || len(got) != 2 || !slices.ContainsFunc(got, func(g job.Run) bool { return g.ID == r.ID }) {
		t.Errorf("listed %v, %v", got, err)
	}
}
