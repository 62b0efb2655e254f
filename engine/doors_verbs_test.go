package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
	pgoutbox "github.com/jobrunner/runner/engine/store/postgres/outbox"
)

// desk is a client with a dead run and a delayed one, as an operator has it.
type desk struct {
	*house
	c             *engine.Client
	dead, delayed string
}

func (h *house) desk(db store.Store) *desk {
	d := &desk{house: h, c: h.client(db)}
	res, err := d.c.Enqueue(h.Context(), engine.Request{Job: "free"})
	h.must(err)
	d.dead = res.ID
	h.must(db.Register(h.Context(), store.RegisterParams{ID: "desk", Lease: time.Hour}))
	claimed, err := db.Claim(h.Context(), store.ClaimParams{Worker: "desk", Queues: []store.QueueLimit{{Queue: "default", Limit: 1}}})
	h.must(err)
	_, err = db.Settle(h.Context(), []store.SettleParams{{
		Ref: job.Ref{RunID: d.dead, Worker: "desk", Claim: claimed.Runs[0].Claims}, Outcome: job.DeadLettered, To: job.Dead, Error: &job.Failure{Code: "X_BROKEN", Message: "it broke"},
	}})
	h.must(err)
	res, err = d.c.Enqueue(h.Context(), engine.Request{Job: "free", Delay: time.Hour})
	h.must(err)
	d.delayed = res.ID
	return d
}

// runs is how its runs are.
func (d *desk) runs() string {
	runs, err := d.c.List(d.Context(), store.ListParams{})
	d.must(err)
	var out strings.Builder
	for _, r := range runs {
		fmt.Fprintln(&out, r.ID == d.dead, r.ID == d.delayed, r.State, r.MaxAttempts, r.Attempt)
	}
	return out.String()
}

// asks are what an operator asks with a text that somebody gave them: each answers
// how much it found or did.
func asks() map[string]func(ctx context.Context, d *desk, s string) (int, error) {
	type ask = func(ctx context.Context, d *desk, s string) (int, error)
	list := func(set func(p *store.ListParams, s string)) ask {
		return func(ctx context.Context, d *desk, s string) (int, error) {
			var p store.ListParams
			set(&p, s)
			runs, err := d.c.List(ctx, p)
			return len(runs), err
		}
	}
	out := map[string]ask{
		"show": func(ctx context.Context, d *desk, s string) (int, error) { _, err := d.c.Get(ctx, s); return 0, err },
		"attempts": func(ctx context.Context, d *desk, s string) (int, error) {
			a, err := d.c.Attempts(ctx, s)
			return len(a), err
		},
		"steps": func(ctx context.Context, d *desk, s string) (int, error) {
			a, err := d.c.Steps(ctx, s)
			return len(a), err
		},
		"cancel": func(ctx context.Context, d *desk, s string) (int, error) {
			_, err := d.c.Cancel(ctx, s, "")
			return 0, err
		},
		"promote": func(ctx context.Context, d *desk, s string) (int, error) {
			_, err := d.c.Promote(ctx, s)
			return 0, err
		},
		"delete": func(ctx context.Context, d *desk, s string) (int, error) { _, err := d.c.Delete(ctx, s); return 0, err },
		"retry": func(ctx context.Context, d *desk, s string) (int, error) {
			_, err := d.c.Retry(ctx, store.RequeueParams{ID: s})
			return 0, err
		},
		"retry from step": func(ctx context.Context, d *desk, s string) (int, error) {
			_, err := d.c.Retry(ctx, store.RequeueParams{ID: d.dead, FromStep: s})
			return 0, err
		},
		"cancel for a reason": func(ctx context.Context, d *desk, s string) (int, error) {
			_, err := d.c.Cancel(ctx, d.dead, s)
			return 0, err
		},
		"list by state": list(func(p *store.ListParams, s string) { p.State = job.State(s) }),
		"list before":   list(func(p *store.ListParams, s string) { p.Before = s }),
		"list after":    list(func(p *store.ListParams, s string) { p.After = s }),
		"events": func(ctx context.Context, d *desk, s string) (int, error) {
			n := 0
			for _, p := range []store.ListEventsParams{{Topic: s}, {Key: s}, {Tenant: s}, {Topic: s, Key: s, Tenant: s}} {
				events, err := d.c.Events(ctx, p)
				if err != nil {
					return 0, err
				}
				n += len(events)
			}
			return n, nil
		},
		"audit by kind": func(ctx context.Context, d *desk, s string) (int, error) {
			entries, err := d.c.Audit(ctx, store.AuditParams{Kind: store.AuditKind(s)})
			return len(entries), err
		},
		"audit of a run": func(ctx context.Context, d *desk, s string) (int, error) {
			entries, err := d.c.Audit(ctx, store.AuditParams{Kind: store.AuditRun, Subject: s})
			return len(entries), err
		},
		"pause by kind": func(ctx context.Context, d *desk, s string) (int, error) {
			_, err := d.c.SetPause(ctx, store.PauseParams{Kind: store.PauseKind(s), Name: "x"})
			return 0, err
		},
		"pause schedule": func(ctx context.Context, d *desk, s string) (int, error) {
			_, err := d.c.PauseSchedule(ctx, s)
			return 0, err
		},
		"resume schedule": func(ctx context.Context, d *desk, s string) (int, error) {
			_, err := d.c.ResumeSchedule(ctx, s)
			return 0, err
		},
		"forget schedule": func(ctx context.Context, d *desk, s string) (int, error) { return 0, d.c.ForgetSchedule(ctx, s) },
		"run schedule": func(ctx context.Context, d *desk, s string) (int, error) {
			_, err := d.c.RunSchedule(ctx, engine.RunScheduleParams{Name: s})
			return 0, err
		},
		"bulk verb": func(ctx context.Context, d *desk, s string) (int, error) {
			res, err := d.c.Bulk(ctx, engine.BulkParams{Verb: engine.BulkVerb(s), Filter: store.ListParams{State: job.Dead}})
			return len(res.Moved), err
		},
	}
	for _, kind := range []store.PauseKind{store.PauseQueue, store.PauseJob, store.PauseTenant} {
		// What is paused is resumed, by whoever, for whatever reason.
		out["pause "+string(kind)] = func(ctx context.Context, d *desk, s string) (int, error) {
			n := 0
			for _, p := range []store.PauseParams{{Kind: kind, Name: s}, {Kind: kind, Name: s, Resume: true}} {
				changed, err := d.c.SetPause(ctx, p)
				if err != nil {
					return n, err
				}
				if changed {
					n++
				}
			}
			return n, nil
		}
	}
	out["pause for a reason"] = func(ctx context.Context, d *desk, s string) (int, error) {
		_, err := d.c.SetPause(ctx, store.PauseParams{Kind: store.PauseJob, Name: "reasons", Reason: s})
		if err == nil {
			_, err = d.c.SetPause(ctx, store.PauseParams{Kind: store.PauseJob, Name: "reasons", Resume: true})
		}
		return 0, err
	}
	out["pause by"] = func(ctx context.Context, d *desk, s string) (int, error) {
		_, err := d.c.SetPause(engine.WithActor(ctx, s), store.PauseParams{Kind: store.PauseJob, Name: "actors"})
		if err == nil {
			_, err = d.c.SetPause(ctx, store.PauseParams{Kind: store.PauseJob, Name: "actors", Resume: true, By: s})
		}
		return 0, err
	}
	// A filter selects in bulk what it lists, and never more.
	for what, set := range map[string]func(p *store.ListParams, s string){
		"job":    func(p *store.ListParams, s string) { p.Job = s },
		"queue":  func(p *store.ListParams, s string) { p.Queue = s },
		"tenant": func(p *store.ListParams, s string) { p.Tenant = &s },
		"id":     func(p *store.ListParams, s string) { p.IDPrefix = s },
		"parent": func(p *store.ListParams, s string) { p.Parent = s },
		"code":   func(p *store.ListParams, s string) { p.Code = s },
		"after":  func(p *store.ListParams, s string) { p.After = s },
	} {
		out["list by "+what] = list(set)
		for verb, state := range map[engine.BulkVerb]job.State{
			engine.BulkCancel: job.Delayed, engine.BulkRetry: job.Dead, engine.BulkPromote: job.Delayed, engine.BulkDelete: job.Dead,
		} {
			out[fmt.Sprintf("bulk %s by %s", verb, what)] = func(ctx context.Context, d *desk, s string) (int, error) {
				p := engine.BulkParams{Verb: verb, Filter: store.ListParams{State: state}}
				set(&p.Filter, s)
				res, err := d.c.Bulk(ctx, p)
				return len(res.Moved) + res.Remaining + res.Blocked, err
			}
		}
	}
	for _, verb := range []engine.BulkVerb{engine.BulkCancel, engine.BulkRetry, engine.BulkPromote, engine.BulkDelete} {
		out[fmt.Sprintf("bulk %s by state", verb)] = func(ctx context.Context, d *desk, s string) (int, error) {
			res, err := d.c.Bulk(ctx, engine.BulkParams{Verb: verb, Filter: store.ListParams{State: job.State(s)}})
			return len(res.Moved), err
		}
	}
	return out
}

// Whatever text an operator's verb is given, it finds what there is of it, which is
// nothing, or refuses with a code; the same on either store, and no run is another
// after that.
func TestWhateverAnOperatorAsksIsAnsweredOrRefused(t *testing.T) {
	h := newHouse(t)
	desks := []*desk{h.desk(h.file), h.desk(h.server)}
	before := [2]string{desks[0].runs(), desks[1].runs()}
	texts := abitest.HostileTexts()
	all := asks()
	for _, what := range slices.Sorted(maps.Keys(all)) {
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			var codes [2]string
			var found [2]int
			for i, d := range desks {
				n, err := all[what](t.Context(), d, texts[name])
				found[i] = n
				if err == nil {
					continue
				}
				var flaws []string
				if codes[i], flaws = refusal(err); len(flaws) > 0 {
					t.Errorf("%s, %s (store %d): %s: %.300v", what, name, i, strings.Join(flaws, "; "), err)
				}
			}
			if codes[0] != codes[1] || found[0] != found[1] {
				t.Errorf("%s, %s: %d and %q on SQLite, %d and %q on Postgres", what, name, found[0], codes[0], found[1], codes[1])
			}
			if found[0] != 0 && !strings.HasPrefix(what, "pause ") {
				t.Errorf("%s, %s: it found %d", what, name, found[0])
			}
		}
		for i, d := range desks {
			if after := d.runs(); after != before[i] {
				t.Fatalf("%s: the runs of store %d are now\n%s", what, i, after)
			}
		}
	}
}

// Numbers and times are bounds, or refused; and a filter means the same for a list
// and in bulk.
func TestWhateverAnOperatorCountsIsBoundedOrRefused(t *testing.T) {
	h := newHouse(t)
	desks := []*desk{h.desk(h.file), h.desk(h.server)}
	before := [2]string{desks[0].runs(), desks[1].runs()}
	same := func(what string, ask func(d *desk) (int, error)) {
		t.Helper()
		var codes [2]string
		var found [2]int
		for i, d := range desks {
			n, err := ask(d)
			found[i] = n
			if err == nil {
				continue
			}
			var flaws []string
			if codes[i], flaws = refusal(err); len(flaws) > 0 {
				t.Errorf("%s (store %d): %s: %.300v", what, i, strings.Join(flaws, "; "), err)
			}
		}
		if codes[0] != codes[1] || found[0] != found[1] {
			t.Errorf("%s: %d and %q on SQLite, %d and %q on Postgres", what, found[0], codes[0], found[1], codes[1])
		}
	}
	ctx := t.Context()
	for _, n := range abitest.HostileNumbers() {
		same(fmt.Sprintf("list %d", n), func(d *desk) (int, error) {
			runs, err := d.c.List(ctx, store.ListParams{Limit: int(n)})
			return len(runs), err
		})
		same(fmt.Sprintf("events %d", n), func(d *desk) (int, error) {
			events, err := d.c.Events(ctx, store.ListEventsParams{Limit: int(n)})
			return len(events), err
		})
		same(fmt.Sprintf("events before %d", n), func(d *desk) (int, error) {
			events, err := d.c.Events(ctx, store.ListEventsParams{Before: n})
			return len(events), err
		})
		same(fmt.Sprintf("audit %d", n), func(d *desk) (int, error) {
			entries, err := d.c.Audit(ctx, store.AuditParams{Limit: int(n)})
			return len(entries), err
		})
		same(fmt.Sprintf("audit before %d", n), func(d *desk) (int, error) {
			entries, err := d.c.Audit(ctx, store.AuditParams{Before: n})
			return len(entries), err
		})
		same(fmt.Sprintf("bulk %d", n), func(d *desk) (int, error) {
			res, err := d.c.Bulk(ctx, engine.BulkParams{Verb: engine.BulkDelete, Filter: store.ListParams{State: job.Dead}, Limit: int(n), DryRun: true})
			return len(res.Moved), err
		})
		if n != 0 { // as many as before: it is retried
			same(fmt.Sprintf("retry with %d attempts", n), func(d *desk) (int, error) {
				_, err := d.c.Retry(ctx, store.RequeueParams{ID: d.delayed, Attempts: int(n)})
				return 0, err
			})
			same(fmt.Sprintf("bulk retry with %d attempts", n), func(d *desk) (int, error) {
				res, err := d.c.Bulk(ctx, engine.BulkParams{Verb: engine.BulkRetry, Filter: store.ListParams{State: job.Dead, Job: "none"}, Attempts: int(n)})
				return len(res.Moved), err
			})
		}
	}
	for _, at := range abitest.HostileInstants() {
		for name, p := range map[string]store.ListParams{"since": {Since: at}, "until": {Until: at}, "since and until": {Since: at, Until: at}} {
			what := fmt.Sprintf("%s %v (%d)", name, at, at.Unix())
			same("list "+what, func(d *desk) (int, error) {
				runs, err := d.c.List(ctx, p)
				return len(runs), err
			})
			p.State = job.Dead
			same("bulk "+what, func(d *desk) (int, error) {
				res, err := d.c.Bulk(ctx, engine.BulkParams{Verb: engine.BulkDelete, Filter: p, DryRun: true})
				return len(res.Moved), err
			})
		}
	}
	for i, d := range desks {
		if after := d.runs(); after != before[i] {
			t.Errorf("the runs of store %d are now\n%s", i, after)
		}
	}
}

// An occurrence that somebody names is told to the runs as it was said, or refused.
func TestAnyOccurrenceIsToldOrRefused(t *testing.T) {
	h := newHouse(t)
	h.m.Schedules = map[string]*manifest.Schedule{"nightly": {
		Name: "nightly", Zone: time.UTC, Enqueue: []manifest.ScheduledRun{{Job: "free", Input: []byte(`["{occurrence}",{occurrence.unix_ms}]`)}},
	}}
	for _, at := range abitest.HostileInstants() {
		var codes [2]string
		for i, db := range []store.Store{h.file, h.server} {
			res, err := h.client(db).RunSchedule(t.Context(), engine.RunScheduleParams{Name: "nightly", Occurrence: at})
			if err != nil {
				var flaws []string
				if codes[i], flaws = refusal(err); len(flaws) > 0 {
					t.Errorf("%v (store %d): %s", at, i, strings.Join(flaws, "; "))
				}
				continue
			}
			run, err := db.Get(t.Context(), res[0].ID)
			h.must(err)
			var said []any
			h.must(json.Unmarshal(run.Input, &said))
			if got, err := time.Parse(time.RFC3339, said[0].(string)); err != nil || !got.Equal(at.Truncate(time.Second)) || said[1] != float64(at.UnixMilli()) {
				t.Errorf("%v (store %d): the input is %s", at, i, run.Input)
			}
		}
		if codes[0] != codes[1] {
			t.Errorf("%v: %q on SQLite, %q on Postgres", at, codes[0], codes[1])
		}
	}
}

// An outbox answers an operator likewise.
func TestWhateverAnOperatorAsksOfAnOutboxIsAnsweredOrRefused(t *testing.T) {
	h := newHouse(t)
	cfg := pgoutbox.Config{URL: h.url, Schema: "asked"}
	m, err := pgoutbox.OpenMigrator(cfg)
	h.must(err)
	_, err = m.Migrate(t.Context())
	h.must(err)
	o, err := pgoutbox.Open(t.Context(), cfg)
	h.must(err)
	t.Cleanup(func() { h.must(o.Close()) })
	conn := h.connect()
	_, err = conn.Exec(t.Context(), `SELECT asked.enqueue('free'); UPDATE asked.outbox SET state = 'rejected', code = 'X_BROKEN', settled_at = now()`)
	h.must(err)
	ctx := t.Context()
	check := func(what string, n int, err error) {
		t.Helper()
		if err == nil {
			if n != 0 {
				t.Errorf("%s: it found %d", what, n)
			}
		} else if _, flaws := refusal(err); len(flaws) > 0 {
			t.Errorf("%s: %s: %.300v", what, strings.Join(flaws, "; "), err)
		}
	}
	texts := abitest.HostileTexts()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		s := texts[name]
		for what, p := range map[string]store.ListStagedParams{"state": {State: store.StagedState(s)}, "job": {Job: s}, "code": {Code: s}, "before": {Before: s}} {
			rows, err := o.ListStaged(ctx, p)
			check("list by "+what+", "+name, len(rows), err)
		}
		for what, p := range map[string]store.RetryStagedParams{"id": {IDs: []string{s}}, "job": {Job: s}, "code": {Code: s}, "no id": {IDs: []string{}}} {
			ids, err := o.RetryStaged(ctx, p)
			check("retry by "+what+", "+name, len(ids), err)
		}
	}
	for _, n := range abitest.HostileNumbers() {
		rows, err := o.ListStaged(ctx, store.ListStagedParams{Limit: int(n), State: store.Waiting})
		check(fmt.Sprintf("list %d", n), len(rows), err)
	}
	if rows, err := o.ListStaged(ctx, store.ListStagedParams{State: store.Rejected}); err != nil || len(rows) != 1 {
		t.Errorf("%d rows are rejected, %v", len(rows), err)
	}
}
