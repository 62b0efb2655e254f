package chaostest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// check is the account of a round that has ended.
func (c *chaos) check() {
	all := c.list()
	c.checkOnce(all)
	c.checkHistories(all)
	c.checkFair(all)
	c.checkNothingHeld()
	done := 0
	for _, r := range all {
		if r.State == job.Done {
			done++
		}
	}
	c.checkCommits(done)
	unowned := c.checkUnowned()
	c.effects.settleDoubts(c.timeline)
	c.effects.mu.Lock()
	defer c.effects.mu.Unlock()
	for _, p := range c.effects.problems {
		c.failf("%s", p)
	}
	c.tell(all, unowned)
}

// timeline is how each claim of a run ended.
func (c *chaos) timeline(run string) []job.AttemptRecord {
	attempts, err := c.direct.Attempts(c.ctx, run)
	if err != nil {
		c.Fatal(err)
	}
	return attempts
}

// list is every run that the store has.
func (c *chaos) list() []job.Run {
	var all []job.Run
	for before := ""; ; {
		page, err := c.direct.List(c.ctx, store.ListParams{Before: before, Limit: 1000})
		if err != nil {
			c.Fatal(err)
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		before = page[len(page)-1].ID
	}
}

// checkOnce: every acknowledged run is there, once, in a terminal state; none
// that was not acknowledged is.
func (c *chaos) checkOnce(all []job.Run) {
	times := map[string]int{}
	for _, r := range all {
		times[r.ID]++
		if _, ok := c.runs[r.ID]; !ok {
			c.failf("run %s was not enqueued", r.ID)
		}
		if !r.State.Terminal() {
			c.failf("run %s is %s", r.ID, r.State)
		}
	}
	for id := range c.runs {
		if times[id] != 1 {
			c.failf("run %s was acknowledged and is there %d times", id, times[id])
		}
	}
}

// checkHistories looks at each run's timeline and records, several at a time.
func (c *chaos) checkHistories(all []job.Run) {
	var wg sync.WaitGroup
	ids := make(chan string)
	for range 6 {
		wg.Go(func() {
			for id := range ids {
				c.checkHistory(id)
			}
		})
	}
	for _, r := range all {
		ids <- r.ID
	}
	close(ids)
	wg.Wait()
}

func (c *chaos) checkHistory(id string) {
	run, err := c.direct.Get(c.ctx, id)
	if err != nil {
		c.failf("%v", err)
		return
	}
	attempts, err := c.direct.Attempts(c.ctx, id)
	if err != nil {
		c.failf("%v", err)
		return
	}
	steps, err := c.direct.ListSteps(c.ctx, id)
	if err != nil {
		c.failf("%v", err)
		return
	}
	c.checkClaims(run, attempts)
	if run.State != job.Done {
		c.checkBuried(run, attempts)
		return
	}
	// The output is what the steps recorded, each once, and what was seen outside.
	var output []string
	if err := json.Unmarshal(run.Output, &output); err != nil || len(output) != 3 {
		c.failf("run %s is done with %s", id, run.Output)
		return
	}
	var recorded []string
	for _, s := range steps {
		if s.Kind == job.KindSleep {
			continue
		}
		var token string
		if err := json.Unmarshal(s.Output, &token); err != nil || s.Status != job.StepCompleted {
			c.failf("run %s: step %s is %s with %s", id, s.Name, s.Status, s.Output)
		}
		recorded = append(recorded, token)
	}
	if !slices.Equal(output, recorded) {
		c.failf("run %s answered %v and recorded %v", id, output, recorded)
	}
	c.effects.recorded(id, output)
}

// checkClaims: each claim ended once, and the one that ended the run was the
// last. A settle under a stale ordinal would leave two records of one claim, or
// none of another.
func (c *chaos) checkClaims(run job.Run, attempts []job.AttemptRecord) {
	if claim := endedTwice(attempts); claim != 0 {
		c.failf("run %s: claim %d ended by what ended another: %v", run.ID, claim, attempts)
	}
	want := int64(1)
	for _, a := range attempts {
		if a.Claim != want {
			c.failf("run %s: claim %d ended where %d should have: %v", run.ID, a.Claim, want, attempts)
			return
		}
		if ends := a.Outcome == job.Completed || a.Outcome == job.DeadLettered; ends && a.Claim != run.Claims {
			c.failf("run %s: claim %d of %d was %s", run.ID, a.Claim, run.Claims, a.Outcome)
		}
		want++
	}
	// A first attempt that completed leaves no record of its own.
	if last := want - 1; last != run.Claims && !(last == 0 && run.Claims == 1 && run.State == job.Done) {
		c.failf("run %s was claimed %d times, and %d claims ended: %v", run.ID, run.Claims, last, attempts)
	}
}

// effectsSay begins the failure of an attempt whose effect was refused; the module
// in testdata words it.
const effectsSay = "the effects server answers"

// endedTwice is the claim that ended by what had ended an earlier one, of which
// each is given to one attempt only; or 0. A lost worker's record may tell what the
// run had failed with before: that is no end of its own.
func endedTwice(attempts []job.AttemptRecord) (claim int64) {
	refusals := map[string]bool{} // of which an attempt has ended
	for _, a := range attempts {
		token, ok := strings.CutPrefix(a.Error.Message, effectsSay+" 503 to ")
		if ok && refusals[token] {
			return a.Claim
		}
		refusals[token] = ok
	}
	return 0
}

// checkBuried: what did not end done lost three workers in a row. What was handed
// back before it began says nothing of the run, in between.
func (c *chaos) checkBuried(run job.Run, attempts []job.AttemptRecord) {
	orphaned := lostInARow(attempts)
	if run.State != job.Dead || run.Error.Code != job.CodeWorkerLost || orphaned < 3 {
		c.failf("run %s ended %s with %s after %d lost workers: %v", run.ID, run.State, run.Error.Code, orphaned, attempts)
	}
}

// lostInARow is how many workers a run lost at last.
func lostInARow(attempts []job.AttemptRecord) (n int) {
	for _, a := range slices.Backward(attempts) {
		switch a.Outcome {
		case job.Orphaned:
			n++
		case job.Shed, job.Interrupted:
		default:
			return n
		}
	}
	return n
}

// checkFair: those who came behind a backlog did not wait for it.
func (c *chaos) checkFair(all []job.Run) {
	if *chaosJump {
		return // nobody knows the order: the instants are a clock's that jumped
	}
	var claimed []job.Run
	for _, r := range all {
		if c.upfront[r.ID] && !r.StartedAt.IsZero() {
			claimed = append(claimed, r)
		}
	}
	begun, total := begunBefore(claimed)
	c.Logf("when the last run behind the backlog began, %d of %d of the backlog had", begun, total)
	if unfair(begun, total) {
		c.failf("%d of %d runs of the backlog began before the last run of another tenant", begun, total)
	}
}

// unfair tells a queue that lets a backlog go first from one that does not, whatever
// happens. What happens may put batches of claims between others and their turn: a
// run's instant is the one at which its claim was asked for, which on a busy machine
// is before one asked for later that was quicker to lock the runs of others, and a
// claim that a crash undoes leaves its runs to whoever has a slot next. What is unfair has all
// of the backlog first, or at least all of somebody's last.
func unfair(begun, total int) bool { return begun > total*3/4 }

// begunBefore is how much of the backlog was claimed before the last run of others,
// and how much there is. What one claim took began at one instant, in no order.
func begunBefore(claimed []job.Run) (begun, total int) {
	var last time.Time
	for _, r := range claimed {
		if r.Tenant != backlog && r.StartedAt.After(last) {
			last = r.StartedAt
		}
	}
	for _, r := range claimed {
		if r.Tenant != backlog {
			continue
		}
		if total++; r.StartedAt.Before(last) {
			begun++
		}
	}
	return begun, total
}

// checkNothingHeld: no worker is left that holds anything.
func (c *chaos) checkNothingHeld() {
	left, err := c.direct.ListWorkers(c.ctx)
	if err != nil {
		c.Fatal(err)
	}
	for _, w := range left {
		if w.Running > 0 {
			c.failf("worker %s holds %d runs", w.ID, w.Running)
		}
	}
}

// tell says how much there was of what was tested: a round without it proves
// nothing.
func (c *chaos) tell(all []job.Run, unowned int) {
	var claims int64
	states := map[job.State]int{}
	for _, r := range all {
		claims += r.Claims
		states[r.State]++
	}
	said, codes := c.logged()
	c.Logf("%v in %d claims; %d effects, %d of overtaken attempts, %d refused; %d settles refused; %v",
		states, claims, c.effects.effects, c.effects.late, c.effects.refused, unowned, said)
	c.Logf("errors in logs: %v", codes)
	c.Logf("what happened: %v", c.happened)
	if said["jobs.reclaim.requeued"] == 0 {
		c.failf("no run was taken over, so nothing was tested")
	}
}

// errorCode begins an error that says what to do.
var errorCode = regexp.MustCompile(`X_[A-Z_]+: `)

// logged counts what the workers said at level warn and above, and the codes of
// the errors among it. An error that concerns the database has a code.
func (c *chaos) logged() (events, codes map[string]int) {
	events, codes = map[string]int{}, map[string]int{}
	for _, w := range c.workers {
		text, err := os.ReadFile(filepath.Join(c.dir, w.name+".log"))
		if err != nil {
			c.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var l struct{ Level, Msg, Code, Error string }
			if json.Unmarshal(line, &l) != nil || l.Level != "WARN" && l.Level != "ERROR" && l.Msg != "serve.started" {
				continue
			}
			events[l.Msg]++
			code := cmp.Or(l.Code, errorCode.FindString(l.Error))
			switch {
			case strings.HasPrefix(code, job.CodeInternal):
				codes[l.Msg+" "+l.Error]++
				c.failf("%s says %s, as if it were not foreseen: %s", w.name, l.Msg, l.Error)
			case code != "":
				codes[l.Msg+" "+code]++
			case l.Error != "" && !strings.HasPrefix(l.Error, effectsSay):
				codes[l.Msg+" "+l.Error]++
				c.failf("%s says %s without a code: %s", w.name, l.Msg, l.Error)
			}
		}
	}
	return events, codes
}

func TestAnEndIsKnownForAnothersByWhatEndedIt(t *testing.T) {
	refused := func(claim int64, token string) job.AttemptRecord {
		return job.AttemptRecord{Claim: claim, Outcome: job.Retried, Error: job.Failure{Message: effectsSay + " 503 to " + token}}
	}
	buried := job.AttemptRecord{Claim: 3, Outcome: job.Orphaned, Error: job.Failure{
		Code: job.CodeWorkerLost, Message: "3 workers in a row were lost; it had failed:  " + refused(1, "a").Error.Message,
	}}
	for _, c := range []struct {
		name     string
		attempts []job.AttemptRecord
		want     int64
	}{
		{"none", nil, 0},
		{"each its own", []job.AttemptRecord{refused(1, "a"), refused(2, "b"), {Claim: 3}, {Claim: 4}}, 0},
		{"one end twice", []job.AttemptRecord{refused(1, "a"), refused(2, "b"), refused(3, "a")}, 3},
		{"a burial that tells of the failure before", []job.AttemptRecord{refused(1, "a"), {Claim: 2}, buried}, 0},
	} {
		if got := endedTwice(c.attempts); got != c.want {
			t.Errorf("%s: claim %d ended by what ended another, want %d", c.name, got, c.want)
		}
	}
}

func TestLostWorkersAreCountedInARow(t *testing.T) {
	for _, c := range []struct {
		outcomes []job.Outcome
		want     int
	}{
		{nil, 0},
		{[]job.Outcome{job.Orphaned, job.Orphaned, job.Orphaned}, 3},
		{[]job.Outcome{job.Orphaned, job.Shed, job.Orphaned, job.Interrupted, job.Orphaned}, 3},
		{[]job.Outcome{job.Orphaned, job.Slept, job.Orphaned, job.Orphaned}, 2},
		{[]job.Outcome{job.Orphaned, job.Orphaned, job.Orphaned, job.Retried}, 0},
	} {
		var attempts []job.AttemptRecord
		for i, o := range c.outcomes {
			attempts = append(attempts, job.AttemptRecord{Claim: int64(i + 1), Outcome: o})
		}
		if got := lostInARow(attempts); got != c.want {
			t.Errorf("%v: %d, want %d", c.outcomes, got, c.want)
		}
	}
}

func TestOnlyAQueueThatLetsABacklogGoFirstIsUnfair(t *testing.T) {
	began := time.Now()
	claims := func(batches ...string) (runs []job.Run) {
		for i, batch := range batches {
			for _, tenant := range batch {
				r := job.Run{Tenant: string(tenant), StartedAt: began.Add(time.Duration(i) * time.Second)}
				if tenant == 'b' {
					r.Tenant = backlog
				}
				runs = append(runs, r)
			}
		}
		return runs
	}
	for _, c := range []struct {
		name    string
		batches []string
		unfair  bool
	}{
		{"in turn", []string{"bxyz", "bxyz", "bb", "bb", "bb", "bb"}, false},
		{"at once", []string{"bbbbbbbbbbbbxyz"}, false},
		{"two batches beside a claim that was slow", []string{"bxyz", "bb", "bb", "bbxyz", "bbbbb"}, false},
		{"as they came", []string{"bbbbbb", "bbbbbb", "xxyyzz"}, true},
		{"one is forgotten", []string{"bxy", "bxy", "bbbbb", "bbbbb", "z"}, true},
	} {
		begun, total := begunBefore(claims(c.batches...))
		if unfair(begun, total) != c.unfair {
			t.Errorf("%s: %d of %d before the last of others is unfair: %v", c.name, begun, total, !c.unfair)
		}
	}
}
