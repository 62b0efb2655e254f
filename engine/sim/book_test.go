package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// book is the account of a simulation: what the database held after the last
// operation, what it has promised, and what became of that. Each operation is
// entered while nothing else moves, so a difference is that operation's.
type book struct {
	w *world

	mu        sync.Mutex // handlers of many attempts write
	labels    map[string]string
	runs      map[string]job.Run   // what the database holds
	ended     map[string]bool      // runs that were deleted or purged, properly
	accepted  map[string]bool      // runs that a client was told of
	touched   map[string]bool      // runs that an operator cancelled or deleted
	leases    map[string]time.Time // by worker: when it lapses, by the store's clock
	owners    map[string]*process  // by worker
	landed    map[job.Ref]bool     // settles that did
	records   map[string]map[string]job.Step
	seen      map[string]string // "run step": the output that a handler was given
	bodies    map[string]int    // "run step": bodies that ran to their end
	onces     map[string]int    // "run step": bodies of a once step, since an operator last had it run again
	schedules map[string]*scheduleBook
	events    []string // payloads, in the order of their commits
	claims    int
}

func newBook(w *world) *book {
	return &book{
		w: w, labels: map[string]string{}, runs: map[string]job.Run{}, ended: map[string]bool{}, accepted: map[string]bool{},
		touched: map[string]bool{}, leases: map[string]time.Time{}, owners: map[string]*process{}, landed: map[job.Ref]bool{},
		records: map[string]map[string]job.Step{}, seen: map[string]string{}, bodies: map[string]int{}, onces: map[string]int{},
		schedules: map[string]*scheduleBook{},
	}
}

// wrong reports a broken promise; the simulation ends.
func (b *book) wrong(format string, args ...any) { b.w.wrong(fmt.Sprintf(format, args...)) }

// name remembers what the runs of a batch are called.
func (b *book) name(batch []store.EnqueueParams) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range batch {
		var in input
		if json.Unmarshal(batch[i].Input, &in) == nil && in.Label != "" {
			b.labels[batch[i].ID] = in.Label
		}
	}
}

func (b *book) label(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.labelOf(id)
}

func (b *book) labelOf(id string) string {
	if l, ok := b.labels[id]; ok {
		return l
	}
	return id
}

// move is a change of state; "" is no run.
type move struct{ from, to job.State }

func froms(to job.State, from ...job.State) (out []move) {
	for _, f := range from {
		out = append(out, move{f, to})
	}
	return out
}

var (
	inserts = []move{{"", job.Ready}, {"", job.Delayed}}
	// follows is what an end may do to others: a parent that waited goes on, and
	// the children of a run that ended are cancelled.
	follows = append(froms(job.Cancelled, job.Ready, job.Delayed, job.Running, job.Suspended), move{job.Suspended, job.Ready})

	// moves are the changes of state that each operation may make.
	moves = map[string][]move{
		"Enqueue":      inserts,
		"EnqueueIf":    inserts,
		"FireSchedule": inserts,
		"SaveSteps":    append(slices.Clone(inserts), move{job.Suspended, job.Ready}),
		"Claim": append(froms(job.Running, job.Ready, job.Delayed, job.Suspended),
			move{job.Delayed, job.Ready}, move{job.Suspended, job.Ready}),
		"Settle": slices.Concat(inserts, follows, []move{
			{job.Running, job.Done}, {job.Running, job.Failed}, {job.Running, job.Dead},
			{job.Running, job.Ready}, {job.Running, job.Delayed}, {job.Running, job.Suspended},
		}),
		"Reclaim":    append(slices.Clone(follows), move{job.Running, job.Ready}, move{job.Running, job.Dead}, move{job.Running, job.Failed}),
		"Deregister": {{job.Running, job.Ready}},
		"Cancel":     follows,
		"Requeue":    froms(job.Ready, job.Done, job.Failed, job.Dead, job.Cancelled),
		"Promote":    froms(job.Ready, job.Delayed, job.Suspended),
		"Delete":     append(froms("", job.Ready, job.Delayed, job.Suspended, job.Done, job.Failed, job.Dead, job.Cancelled), follows...),
		"Purge":      froms("", job.Done, job.Failed, job.Dead, job.Cancelled),
		"Publish":    {{job.Suspended, job.Ready}},
	}
)

// refresh reads the runs after an operation and checks every difference. It
// answers what they were before.
func (b *book) refresh(op string) (before map[string]job.Run) {
	list, err := b.w.truth.List(context.Background(), store.ListParams{Limit: 1000})
	if err != nil {
		b.wrong("the database cannot be read: %v", err)
		return b.runs
	}
	now := make(map[string]job.Run, len(list))
	keys := map[[3]string]string{}
	holders := 0
	for _, r := range list {
		now[r.ID] = r
		if r.Job == "narrow" && r.State == job.Running {
			if holders++; holders > narrow {
				b.wrong("%s: %d runs of a job run, of which %d may", op, holders, narrow)
			}
		}
		if r.State.Live() {
			k := [3]string{r.Job, r.Tenant, r.Key}
			if other, ok := keys[k]; ok {
				b.wrong("%s: %s and %s are live and have one key %q", op, b.label(other), b.label(r.ID), r.Key)
			}
			keys[k] = r.ID
		}
	}
	b.mu.Lock()
	before, b.runs = b.runs, now
	b.mu.Unlock()
	for id, r := range now {
		old, was := before[id]
		if !was {
			old = job.Run{}
			b.appeared(op, r)
		}
		b.moved(op, old, r)
	}
	for id, old := range before {
		if _, is := now[id]; !is {
			b.vanished(op, old)
		}
	}
	return before
}

func allowed(op string, m move) bool { return slices.Contains(moves[op], m) }

// moved checks one run before and after an operation.
func (b *book) moved(op string, old, r job.Run) {
	name := b.label(r.ID)
	claimed := op == "Claim" && r.State == job.Running && old.State != job.Running
	if old.State != r.State && !allowed(op, move{old.State, r.State}) {
		b.wrong("%s moved %s from %q to %q", op, name, old.State, r.State)
	}
	switch {
	case op == "Promote" && old.State == job.Suspended && r.State == job.Ready && old.RunAt.After(b.w.now()):
		b.wrong("a promotion woke %s before %s", name, old.RunAt)
	case claimed && (r.Claims != old.Claims+1 || r.Attempt != old.Attempt+1):
		b.wrong("a claim took %s from claim %d, attempt %d to %d, %d", name, old.Claims, old.Attempt, r.Claims, r.Attempt)
	case !claimed && r.Claims != old.Claims:
		b.wrong("%s took %s from claim %d to %d", op, name, old.Claims, r.Claims)
	case r.Attempt > r.MaxAttempts:
		b.wrong("%s: %s is at attempt %d of %d", op, name, r.Attempt, r.MaxAttempts)
	case (r.Worker != "") != (r.State == job.Running):
		b.wrong("%s: %s is %s and held by %q", op, name, r.State, r.Worker)
	case old.State == job.Running && r.State == job.Running && old.Worker != r.Worker:
		b.wrong("%s handed %s, which was running, to another worker", op, name)
	case r.State == job.Delayed && r.RunAt.IsZero():
		b.wrong("%s: %s is delayed until never", op, name)
	}
}

func (b *book) appeared(op string, r job.Run) {
	if b.ended[r.ID] {
		b.wrong("%s: %s is back from the dead", op, b.label(r.ID))
	}
	b.occurs(op, r)
}

func (b *book) vanished(op string, old job.Run) {
	if !allowed(op, move{old.State, ""}) {
		b.wrong("%s lost %s, which was %s", op, b.label(old.ID), old.State)
	}
	if op == "Purge" && (old.ExpiresAt.IsZero() || old.ExpiresAt.After(b.w.now())) {
		b.wrong("%s was purged before %s", b.label(old.ID), old.ExpiresAt)
	}
	b.ended[old.ID] = true
}

func (b *book) enqueued(op string, batch []store.EnqueueParams, res []store.EnqueueResult) {
	before := b.refresh(op)
	for i := range res {
		switch _, was := before[batch[i].ID]; {
		case res[i].Deduped:
		case was:
			b.wrong("%s answered %s as new, which is not", op, b.label(batch[i].ID))
		default:
			b.exists(op, res[i].ID)
		}
	}
}

func (b *book) exists(op, id string) {
	if _, is := b.runs[id]; !is {
		b.wrong("%s answered %s, which is not there", op, b.label(id))
	}
}

func (b *book) claimed(p store.ClaimParams, res store.ClaimResult) {
	before := b.refresh("Claim")
	lease, known := b.leases[p.Worker]
	if len(res.Runs) > 0 && (!known || !lease.After(b.w.now())) {
		b.wrong("a claim gave %d runs to a worker whose lease lapsed at %s", len(res.Runs), lease)
	}
	got := map[string]int{}
	for _, r := range res.Runs {
		old := before[r.ID]
		got[r.Queue]++
		b.claims++
		switch is := b.runs[r.ID]; {
		case old.State == job.Running || old.State.Terminal() || old.State == "":
			b.wrong("a claim handed out %s, which was %q", b.label(r.ID), old.State)
		case old.RunAt.After(b.w.now()):
			b.wrong("a claim handed out %s, which is due at %s, at %s", b.label(r.ID), old.RunAt, b.w.now())
		case is.Worker != p.Worker || is.Claims != r.Claims || is.State != job.Running:
			b.wrong("a claim answered %s, claim %d: it is %s, claim %d", b.label(r.ID), r.Claims, is.State, is.Claims)
		}
	}
	for _, q := range p.Queues {
		if got[q.Queue] > q.Limit {
			b.wrong("a claim of %d runs of queue %s answered %d", q.Limit, q.Queue, got[q.Queue])
		}
	}
}

// holds reports whether a claim is the run's.
func holds(runs map[string]job.Run, ref job.Ref) bool {
	r, ok := runs[ref.RunID]
	return ok && r.State == job.Running && r.Worker == ref.Worker && r.Claims == ref.Claim
}

func (b *book) settled(batch []store.SettleParams, res []store.SettleResult) {
	before := b.refresh("Settle")
	once := map[job.Ref]bool{}
	for i := range res {
		p := &batch[i]
		name := fmt.Sprintf("%s#%d", b.label(p.Ref.RunID), p.Ref.Claim)
		fenced, repeat := holds(before, p.Ref), b.landed[p.Ref] || once[p.Ref]
		switch {
		case res[i].Landed && !fenced && !repeat:
			b.wrong("a settle of %s landed, though the run was %s under claim %d", name, before[p.Ref.RunID].State, before[p.Ref.RunID].Claims)
		case !res[i].Landed && fenced:
			b.wrong("a settle of %s did not land, though the claim was its own", name)
		}
		if !res[i].Landed || repeat {
			continue
		}
		once[p.Ref] = true
		b.landed[p.Ref] = true
		is := b.runs[p.Ref.RunID]
		if is.State != p.To && !(p.To == job.Suspended && is.State == job.Ready) {
			b.wrong("a settle of %s to %s left it %s", name, p.To, is.State)
		}
		if !p.Outcome.Counted() && is.Attempt != before[p.Ref.RunID].Attempt-1 {
			b.wrong("a settle of %s as %s counted", name, p.Outcome)
		}
		if p.To == job.Done && !bytes.Equal(b.output(p.Ref.RunID), p.Output) {
			b.wrong("a settle of %s did not keep its output", name)
		}
		if p.Step != nil {
			b.recorded("Settle", p.Ref.RunID, p.Step)
		}
	}
}

func (b *book) output(id string) []byte {
	r, err := b.w.truth.Get(context.Background(), id)
	if err != nil {
		b.wrong("%s cannot be read: %v", b.label(id), err)
	}
	return r.Output
}

func (b *book) registered(p *process, r store.RegisterParams) {
	b.leases[r.ID] = b.w.now().Add(r.Lease)
	b.mu.Lock()
	b.owners[r.ID] = p
	b.labels[r.ID] = p.name
	b.mu.Unlock()
}

func (b *book) renewed(p store.RenewParams, res store.RenewResult) {
	lapsed := !b.leases[p.Worker].After(b.w.now())
	if res.Alive && lapsed {
		b.wrong("a renewal revived a lease of %s that had lapsed", b.label(p.Worker))
	}
	if !res.Alive {
		return
	}
	b.leases[p.Worker] = b.w.now().Add(p.Lease)
	lost := map[job.Ref]bool{}
	for _, l := range res.Lost {
		lost[l.Ref] = true
	}
	for _, ref := range p.Held {
		if holds(b.runs, ref) == lost[ref] {
			b.wrong("a renewal says of %s#%d that lost is %v", b.label(ref.RunID), ref.Claim, lost[ref])
		}
	}
}

func (b *book) deregistered(p *process, id string) {
	before := b.refresh("Deregister")
	b.untouched("Deregister", before, func(r job.Run) bool { return r.Worker == id })
	if b.owners[id] != p {
		b.untouched("another's Deregister", before, func(job.Run) bool { return !b.leases[id].After(b.w.now()) })
	}
	delete(b.leases, id)
}

func (b *book) reclaimed(res store.ReclaimResult) {
	if len(res.Requeued)+len(res.Buried) == 0 {
		return
	}
	before := b.refresh("Reclaim")
	b.untouched("Reclaim", before, func(r job.Run) bool { return !b.leases[r.Worker].After(b.w.now()) })
}

// untouched checks that the runs which were running and have been taken from
// their worker are those that may be.
func (b *book) untouched(op string, before map[string]job.Run, but func(job.Run) bool) {
	for id, old := range before {
		if old.State == job.Running && b.runs[id].State != job.Running && b.runs[id].State != job.Cancelled && !but(old) {
			b.wrong("%s took %s from %s, whose lease ends at %s", op, b.label(id), b.label(old.Worker), b.leases[old.Worker])
		}
	}
}

// published notes events, and that they woke who waited.
func (b *book) published(batch []store.EventParams, res []store.EventResult) {
	b.refresh("Publish")
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range res {
		if !res[i].Deduped {
			b.events = append(b.events, string(batch[i].Payload))
		}
	}
}

// place is an event's among those of the topic, or -1.
func (b *book) place(payload string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Index(b.events, payload)
}

func (b *book) deleted(id string) {
	b.mu.Lock()
	b.touched[id] = true
	b.mu.Unlock()
	b.refresh("Delete")
}
