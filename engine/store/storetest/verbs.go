package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// inEachState has one run in each state.
func (e *env) inEachState() map[job.State]string {
	e.Helper()
	e.register("each")
	out := map[job.State]string{}
	for _, end := range []struct {
		outcome job.Outcome
		to      job.State
	}{{job.Completed, job.Done}, {job.Dropped, job.Failed}, {job.DeadLettered, job.Dead}, {job.Slept, job.Suspended}} {
		out[end.to] = e.add(store.EnqueueParams{})
		r := e.claimOne("each")
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: end.outcome, To: end.to, Delay: time.Hour})
	}
	out[job.Running] = e.add(store.EnqueueParams{})
	e.claimOne("each")
	out[job.Cancelled] = e.add(store.EnqueueParams{})
	if _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: out[job.Cancelled]}); err != nil {
		e.Fatal(err)
	}
	out[job.Ready] = e.add(store.EnqueueParams{})
	out[job.Delayed] = e.add(store.EnqueueParams{Delay: time.Hour})
	return out
}

func (e *env) audit(p store.AuditParams) []store.AuditEntry {
	e.Helper()
	entries, err := e.db.Audit(e.ctx, p)
	if err != nil {
		e.Fatalf("audit: %v", err)
	}
	return entries
}

var verbTests = []test{
	// (S17, O6)
	{"a delayed run is promoted, and is claimed at once", func(e *env) {
		e.register("w")
		id := e.add(store.EnqueueParams{Delay: time.Hour})
		if runs := e.claim("w", 1); len(runs) != 0 {
			e.Fatalf("claimed %v before its time", ids(runs))
		}
		now := e.now()
		got, err := e.db.Promote(e.ctx, store.PromoteParams{ID: id, By: "ann"})
		if err != nil {
			e.Fatal(err)
		}
		if d := gocmp.Diff(e.get(id), got); d != "" || got.State != job.Ready {
			e.Errorf("answered %+v (-stored +answered):\n%s", got, d)
		}
		e.wantTime("due", got.RunAt, now)
		if r := e.claimOne("w"); r.ID != id {
			e.Errorf("claimed %s", r.ID)
		}
	}},
	{"a run that is ready keeps its place when it is promoted", func(e *env) {
		id := e.add(store.EnqueueParams{})
		before := e.get(id)
		e.db.Advance(time.Minute)
		if _, err := e.db.Promote(e.ctx, store.PromoteParams{ID: id}); err != nil {
			e.Fatal(err)
		}
		if d := gocmp.Diff(before, e.get(id)); d != "" {
			e.Errorf("changed:\n%s", d)
		}
	}},
	// (S18, O5, O6)
	{"each state is promoted or refused, deleted or refused", func(e *env) {
		for state, id := range e.inEachState() {
			before := e.get(id)
			_, err := e.db.Promote(e.ctx, store.PromoteParams{ID: id})
			if state.Promotable() {
				if err != nil {
					e.Errorf("promote of %s: %v", state, err)
				}
				before = e.get(id)
			} else {
				e.wantRefused(err, job.CodeNotPromotable)
				if d := gocmp.Diff(before, e.get(id)); d != "" {
					e.Errorf("the refusal changed the %s run:\n%s", state, d)
				}
			}
			gone, err := e.db.Delete(e.ctx, store.DeleteParams{ID: id})
			if !state.Removable() {
				e.wantRefused(err, job.CodeNotRemovable)
				e.wantState(id, state)
				continue
			}
			if err != nil {
				e.Errorf("delete of %s: %v", state, err)
				continue
			}
			if d := gocmp.Diff(before, gone); d != "" {
				e.Errorf("deleted %s run (-was +answered):\n%s", state, d)
			}
			_, err = e.db.Get(e.ctx, id)
			e.wantRefused(err, job.CodeNotFound)
		}
		for _, q := range e.stats().Queues {
			if q.Ready+q.Delayed+q.Suspended+q.Done+q.Failed+q.Dead+q.Cancelled != 0 || q.Running != 1 {
				e.Errorf("left in the counts: %+v", q)
			}
		}
	}},
	{"a deleted run leaves no history and frees its key", func(e *env) {
		e.register("w")
		id := e.add(store.EnqueueParams{Key: "k", Input: make([]byte, 100_000)})
		r := e.claimOne("w")
		e.saveStep(store.StepParams{Ref: refOf(r), Name: "a", Output: []byte("1")})
		e.settle(store.SettleParams{Ref: refOf(r), Outcome: job.Retried, To: job.Delayed, Delay: time.Hour, Error: &job.Failure{Message: "m"}})
		if _, err := e.db.Delete(e.ctx, store.DeleteParams{ID: id}); err != nil {
			e.Fatal(err)
		}
		if n := len(e.steps(id)) + len(e.attempts(id)); n != 0 {
			e.Errorf("%d records left", n)
		}
		if again := e.add(store.EnqueueParams{Key: "k"}); again == id {
			e.Error("the id came back")
		}
	}},
	{"what no run is named is not found by the verbs", func(e *env) {
		for _, id := range []string{uid(55), "", "nonsense"} {
			_, err := e.db.Promote(e.ctx, store.PromoteParams{ID: id})
			e.wantRefused(err, job.CodeNotFound)
			_, err = e.db.Delete(e.ctx, store.DeleteParams{ID: id})
			e.wantRefused(err, job.CodeNotFound)
		}
		if entries := e.audit(store.AuditParams{}); len(entries) != 0 {
			e.Errorf("audit of what was refused: %+v", entries)
		}
	}},
	{"the audit is filtered by who, what, to what and when, page by page", func(e *env) {
		begun := e.now()
		actors := []string{"ann", "bob", strings.Repeat("long", 300), strings.Repeat("long", 300) + "er"}
		var all []store.AuditEntry // newest first
		for i := range 60 {
			p := store.PauseParams{Kind: []store.PauseKind{store.PauseQueue, store.PauseJob, store.PauseTenant}[i%3],
				Name: fmt.Sprint("n", i/12%2), By: actors[i/2%4], Reason: fmt.Sprint(i), Resume: i/6%2 == 1}
			changed, err := e.db.SetPause(e.ctx, p)
			if err != nil {
				e.Fatal(err)
			}
			if changed {
				entry := p.Audit()
				entry.At = e.now()
				all = append([]store.AuditEntry{entry}, all...)
			}
			e.db.Advance(time.Second)
		}
		at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
		for _, p := range []store.AuditParams{
			{}, {By: "ann"}, {By: actors[2]}, {By: "nobody"}, {Verb: store.AuditPause}, {Verb: store.AuditForget}, {Kind: "job"}, {Kind: "job", Subject: "n1"},
			{Since: at(20)}, {Until: at(20)}, {Since: at(20), Until: at(40)}, {Since: at(40), Until: at(20)}, {Since: time.Unix(-1e12, 0), Until: time.Unix(1e14, 0)},
			{By: "bob", Verb: store.AuditResume}, {By: "bob", Kind: "queue", Since: at(10)}, {Verb: store.AuditPause, Kind: "tenant", Subject: "n0", By: "ann"},
			{By: actors[3], Verb: store.AuditPause, Kind: "job", Subject: "n0", Since: at(1), Until: at(59)},
		} {
			var want []store.AuditEntry
			for _, a := range all {
				if (p.By == "" || a.By == p.By) && (p.Verb == "" || a.Verb == p.Verb) && (p.Kind == "" || a.Kind == p.Kind) &&
					(p.Subject == "" || a.Subject == p.Subject) && (p.Since.IsZero() || !a.At.Before(p.Since)) && (p.Until.IsZero() || a.At.Before(p.Until)) {
					want = append(want, a)
				}
			}
			var got []store.AuditEntry
			p.Limit = 4
			for {
				page := e.audit(p)
				got = append(got, page...)
				if len(page) < p.Limit {
					break
				}
				p.Before = page[len(page)-1].ID
			}
			if d := gocmp.Diff(want, got, cmpopts.IgnoreFields(store.AuditEntry{}, "ID")); d != "" {
				e.Errorf("audit of %+v (-want +got):\n%s", p, d)
			}
		}
		if len(all) < 30 {
			e.Errorf("only %d entries were there to be filtered", len(all))
		}
	}},
	{"the audit says who did what, newest first, and nothing of what was refused", func(e *env) {
		id, other := e.add(store.EnqueueParams{Delay: time.Hour}), e.add(store.EnqueueParams{})
		now := e.now()
		steps := []func() error{
			func() error { _, err := e.db.Promote(e.ctx, store.PromoteParams{ID: id, By: "ann"}); return err },
			func() error {
				_, err := e.db.Cancel(e.ctx, store.CancelParams{ID: id, By: "bob", Reason: "left"})
				return err
			},
			func() error {
				_, err := e.db.Requeue(e.ctx, store.RequeueParams{ID: id, By: "cy", Attempts: 7})
				return err
			},
			func() error { _, err := e.db.Delete(e.ctx, store.DeleteParams{ID: id}); return err },
			func() error { _, err := e.db.Cancel(e.ctx, store.CancelParams{ID: other, By: "dee"}); return err },
		}
		for _, step := range steps {
			if err := step(); err != nil {
				e.Fatal(err)
			}
		}
		_, err := e.db.Cancel(e.ctx, store.CancelParams{ID: other, By: "late"})
		e.wantRefused(err, job.CodeNotCancellable)

		want := []store.AuditEntry{
			{By: "dee", Verb: store.AuditCancel, Kind: store.AuditRun, Subject: other},
			{By: "", Verb: store.AuditDelete, Kind: store.AuditRun, Subject: id, Detail: jobA + ", ready"},
			{By: "cy", Verb: store.AuditRetry, Kind: store.AuditRun, Subject: id, Detail: "attempts 7"},
			{By: "bob", Verb: store.AuditCancel, Kind: store.AuditRun, Subject: id, Detail: "left"},
			{By: "ann", Verb: store.AuditPromote, Kind: store.AuditRun, Subject: id},
		}
		got := e.audit(store.AuditParams{})
		var cursor int64
		for i := range got {
			e.wantTime("audited", got[i].At, now)
			if i == 2 {
				cursor = got[1].ID
			}
		}
		if !slices.IsSortedFunc(got, func(a, b store.AuditEntry) int { return cmp.Compare(b.ID, a.ID) }) {
			e.Errorf("out of order: %+v", got)
		}
		if d := gocmp.Diff(want, got, cmpopts.IgnoreFields(store.AuditEntry{}, "ID", "At")); d != "" {
			e.Errorf("audit (-want +got):\n%s", d)
		}
		if n := len(e.audit(store.AuditParams{Before: cursor})); n != 3 {
			e.Errorf("%d entries before the second", n)
		}
		if n := len(e.audit(store.AuditParams{Kind: store.AuditRun, Subject: id})); n != 4 {
			e.Errorf("%d entries of the first run", n)
		}
		if n := len(e.audit(store.AuditParams{Kind: store.AuditRun, Limit: 2})); n != 2 {
			e.Errorf("%d entries in a page of 2", n)
		}
		if n := len(e.audit(store.AuditParams{Kind: "queue"})); n != 0 {
			e.Errorf("%d entries of another kind", n)
		}
		if n := len(e.audit(store.AuditParams{By: "ann"})); n != 1 {
			e.Errorf("%d entries of ann", n)
		}
		_, err = e.db.Audit(e.ctx, store.AuditParams{Verb: "hide"})
		e.wantRefused(err, job.CodeInvalid)
		_, err = e.db.Audit(e.ctx, store.AuditParams{Limit: -1})
		e.wantRefused(err, job.CodePageInvalid)

		e.db.Advance(store.AuditRetention + time.Minute)
		if _, err := e.db.Purge(e.ctx, 10); err != nil {
			e.Fatal(err)
		}
		if left := e.audit(store.AuditParams{}); len(left) != 0 {
			e.Errorf("kept beyond its time: %+v", left)
		}
	}},
}
