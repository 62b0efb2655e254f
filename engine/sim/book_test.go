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
	sent      map[string]string    // by run: the key it was enqueued with
	runs      map[string]job.Run   // what the database holds
	ended     map[string]bool      // runs that were deleted or purged, properly
	accepted  map[string]bool      // runs that a client was told of
	touched   map[string]bool      // runs that an operator cancelled or deleted
	resumed   map[string]bool      // runs that go on being undone since an operator retried them
	leases    map[string]time.Time // by worker: when it lapses, by the store's clock
	owners    map[string]*process  // by worker
	landed    map[job.Ref]bool     // settles that did
	records   map[string]map[string]job.Step
	seen      map[string]string // "run step": the output that a handler was given
	bodies    map[string]int    // "run step": bodies that ran to their end
	onces     map[string]int    // "run step": bodies of a once step, since an operator last had it run again
	schedules map[string]*scheduleBook
	events    []job.Event                    // that were ever published, in their order
	lines     map[string][]line              // by run: what its handlers logged
	waiting   map[string]map[string]job.Step // by run: its waits
	claims    int
	looks     int // operations after which the runs were read

	links   map[string]link        // by child: who waits for it
	parked  map[string]int         // by run that waits for children: how many may be live when it wakes
	bereft  map[string]bool        // runs that were cancelled with their parent
	told    map[string]bool        // keys of runs that were told of an end
	undoers map[string]job.Ref     // "run step": the claim that undid it
	busy    map[job.Ref]bool       // claims that found their key held
	stray   map[job.Ref]bool       // claims of runs whose limits the claim did not know
	places  map[job.Ref]place      // what claims take up
	inside  map[string]int         // "process queue tenant": attempts inside a handler
	starts  map[string][]time.Time // by what has a rate
	pauses  map[pauseOf]bool       // what is paused
	born    map[string]int         // runs that were ever inserted: by which operation
}

func newBook(w *world) *book {
	return &book{
		w: w, labels: map[string]string{}, sent: map[string]string{}, runs: map[string]job.Run{}, ended: map[string]bool{}, accepted: map[string]bool{},
		touched: map[string]bool{}, resumed: map[string]bool{}, leases: map[string]time.Time{}, owners: map[string]*process{}, landed: map[job.Ref]bool{},
		records: map[string]map[string]job.Step{}, seen: map[string]string{}, bodies: map[string]int{}, onces: map[string]int{},
		schedules: map[string]*scheduleBook{},
		waiting:   map[string]map[string]job.Step{}, lines: map[string][]line{},
		links: map[string]link{}, parked: map[string]int{}, bereft: map[string]bool{}, told: map[string]bool{}, undoers: map[string]job.Ref{},
		busy: map[job.Ref]bool{}, stray: map[job.Ref]bool{}, places: map[job.Ref]place{}, inside: map[string]int{},
		starts: map[string][]time.Time{}, pauses: map[pauseOf]bool{}, born: map[string]int{},
	}
}

// wrong reports a broken promise; the simulation ends.
func (b *book) wrong(format string, args ...any) { b.w.wrong(fmt.Sprintf(format, args...)) }

// name remembers what the runs of a batch are called.
func (b *book) name(batch []store.EnqueueParams) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range batch {
		b.sent[batch[i].ID] = batch[i].Key
		var in input
		if json.Unmarshal(batch[i].Input, &in) == nil && in.Label != "" {
			b.labels[batch[i].ID] = in.Label
		} else if l := b.endingLabel(&batch[i]); l != "" {
			b.labels[batch[i].ID] = l
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
	// the children of a run that ended are cancelled, or undone.
	follows = slices.Concat(froms(job.Cancelled, job.Ready, job.Delayed, job.Running, job.Suspended), unwinds, []move{{job.Suspended, job.Ready}})
	// unwinds is what becomes of a run that is cancelled, and has something to undo.
	unwinds = []move{{job.Running, job.Suspended}, {job.Running, job.Ready}, {job.Delayed, job.Ready}, {job.Suspended, job.Ready}}

	// moves are the changes of state that each operation may make.
	moves = map[string][]move{
		"Enqueue":      inserts,
		"EnqueueIf":    inserts,
		"FireSchedule": inserts,
		"Restart":      inserts,
		"SaveSteps":    append(slices.Clone(inserts), move{job.Suspended, job.Ready}),
		"Claim": append(froms(job.Running, job.Ready, job.Delayed, job.Suspended),
			move{job.Delayed, job.Ready}, move{job.Suspended, job.Ready}),
		"Settle": slices.Concat(inserts, follows, []move{
			{job.Running, job.Done}, {job.Running, job.Failed}, {job.Running, job.Dead},
			{job.Running, job.Ready}, {job.Running, job.Delayed}, {job.Running, job.Suspended},
			{"", job.Cancelled}, // a child, of a run that another settle of the batch cancels
		}),
		"Reclaim":    slices.Concat(inserts, follows, []move{{job.Running, job.Ready}, {job.Running, job.Dead}, {job.Running, job.Failed}}),
		"Deregister": {{job.Running, job.Ready}},
		"Cancel":     follows,
		cancelHard:   follows,
		"LetGo":      {{job.Suspended, job.Ready}},
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
	before = b.look(op)
	b.families(op, before)
	return before
}

// look is refresh for an operation that may start children: what runs are to each
// other is checked when these are known.
func (b *book) look(op string) (before map[string]job.Run) {
	list, err := b.w.truth.List(context.Background(), store.ListParams{Limit: 1000})
	if err != nil {
		b.wrong("the database cannot be read: %v", err)
		return b.runs
	}
	now := make(map[string]job.Run, len(list))
	keys := map[[3]string]string{}
	for _, r := range list {
		now[r.ID] = r
		if r.State.Live() {
			k := [3]string{r.Job, r.Tenant, b.sent[r.ID]}
			if other, ok := keys[k]; ok {
				b.wrong("%s: %s and %s are live and have one key %q", op, b.label(other), b.label(r.ID), k[2])
			}
			keys[k] = r.ID
		}
	}
	b.mu.Lock()
	before, b.runs = b.runs, now
	b.mu.Unlock()
	b.crowds(op)
	var ended, appeared []job.Run
	b.looks++
	for _, r := range list {
		old, was := before[r.ID]
		if !was {
			old = job.Run{}
			b.appeared(op, r)
			appeared = append(appeared, r)
		}
		b.moved(op, old, r)
		if (!was || old.State.Live()) && r.State.Terminal() {
			if keep := b.w.manifest.Jobs[r.Job].Retention; !r.ExpiresAt.Equal(r.FinishedAt.Add(keep)) || !r.FinishedAt.Equal(b.w.now()) {
				b.wrong("%s ended %s at %s, and keeps it until %s, and not for %v from %s", op, b.label(r.ID), r.FinishedAt, r.ExpiresAt, keep, b.w.now())
			}
			b.unwound(op, r)
			if r.State != job.Cancelled {
				ended = append(ended, r)
			}
		}
	}
	b.endings(op, ended, appeared)
	for id, old := range before { // one at most, but in a purge
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
	case r.Attempt > r.MaxAttempts && r.Attempt > b.mostAttempts(&r):
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
	if b.ended[r.ID] && !(b.isTouched(r.ID) && b.unheard(op, r.ID)) {
		b.wrong("%s: %s is back from the dead", op, b.label(r.ID))
	}
	b.born[r.ID] = b.looks
	b.occurs(op, r)
}

// unheard reports whether who asked for a run has not heard that it is there, and may
// ask for it again though an operator has deleted it meanwhile.
func (b *book) unheard(op, id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.w.outbox.waits(id) || op == "Enqueue" && !b.accepted[id]
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
			b.stamped(op, &batch[i])
		}
	}
}

// stamped checks when a run is due that was inserted just now: at the time that it
// was asked for, or at the store's, and as long after as was said.
func (b *book) stamped(op string, p *store.EnqueueParams) {
	r, want := b.runs[p.ID], p.RunAt
	if want.IsZero() {
		want = b.w.now().Add(p.Delay)
	}
	if d := r.RunAt.Sub(want); d.Abs() >= time.Millisecond {
		b.wrong("%s made %s due at %s, and it was to be at %s", op, b.label(p.ID), r.RunAt, want)
	}
	if waits := r.RunAt.After(b.w.now()); waits != (r.State == job.Delayed) {
		b.wrong("%s made %s %s, which is due at %s, at %s", op, b.label(p.ID), r.State, r.RunAt, b.w.now())
	}
}

func (b *book) exists(op, id string) {
	if _, is := b.runs[id]; !is {
		b.wrong("%s answered %s, which is not there", op, b.label(id))
	}
}

// due reports whether a claim may change something without taking a run: it may
// make ready what was to wait until now.
func (b *book) due() bool {
	now := b.w.now()
	for _, r := range b.runs {
		if (r.State == job.Delayed || r.State == job.Suspended) && !r.RunAt.After(now) {
			return true
		}
	}
	return false
}

func (b *book) claimed(version int64, p store.ClaimParams, res store.ClaimResult) {
	for _, r := range res.Runs {
		if _, busy := res.Busy[r.ID]; busy {
			b.busy[job.Ref{RunID: r.ID, Worker: p.Worker, Claim: r.Claims}] = true
		}
	}
	before := b.runs
	if len(res.Runs) > 0 || b.due() {
		before = b.refresh("Claim")
	}
	lease, known := b.leases[p.Worker]
	if len(res.Runs) > 0 && (!known || !lease.After(b.w.now())) {
		b.wrong("a claim gave %d runs to a worker whose lease lapsed at %s", len(res.Runs), lease)
	}
	b.takes(version, p, res)
	got := map[string]int{}
	for _, r := range res.Runs {
		old := before[r.ID]
		got[r.Queue]++
		b.claims++
		b.begins(res, r)
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
		if got[q.Queue] < q.Limit && !res.WorkerGone && (res.NextDue.IsZero() || res.NextDue.After(res.Now)) {
			b.overlooked(version, q)
		}
	}
}

// holds reports whether a claim is the run's.
func holds(runs map[string]job.Run, ref job.Ref) bool {
	r, ok := runs[ref.RunID]
	return ok && r.State == job.Running && r.Worker == ref.Worker && r.Claims == ref.Claim
}

func (b *book) settled(batch []store.SettleParams, res []store.SettleResult) {
	before, last := b.look("Settle"), b.lastEvent()
	for i := range res {
		if p := &batch[i]; res[i].Landed && holds(before, p.Ref) {
			b.started(before, p)
		}
	}
	b.families("Settle", before)
	once := map[job.Ref]bool{}
	for i := range res {
		p := &batch[i]
		name := fmt.Sprintf("%s#%d", b.label(p.Ref.RunID), p.Ref.Claim)
		fenced, repeat := holds(before, p.Ref), b.landed[p.Ref] || once[p.Ref]
		switch {
		case res[i].Landed && !fenced && !repeat:
			b.wrong("a settle of %s landed, though the run was %s under claim %d", name, before[p.Ref.RunID].State, before[p.Ref.RunID].Claims)
		case !res[i].Landed && fenced && !b.bereft[p.Ref.RunID]: // a settle of its parent came before it
			b.wrong("a settle of %s did not land, though the claim was its own", name)
		}
		if !res[i].Landed || repeat {
			continue
		}
		once[p.Ref] = true
		b.refused(p)
		b.landed[p.Ref] = true
		is := b.runs[p.Ref.RunID]
		if is.State != p.To && !(p.To == job.Suspended && is.State == job.Ready) && !(p.To.Live() && b.bereft[p.Ref.RunID]) {
			b.wrong("a settle of %s to %s left it %s", name, p.To, is.State)
		}
		if !p.Outcome.Counted() && is.Attempt != before[p.Ref.RunID].Attempt-1 {
			b.wrong("a settle of %s as %s counted", name, p.Outcome)
		}
		if p.To == job.Done && !bytes.Equal(b.output(p.Ref.RunID), p.Output) {
			b.wrong("a settle of %s did not keep its output", name)
		}
		b.logged("Settle", p.Ref, true)
		if p.Step != nil {
			st := *p.Step
			st.Ref = p.Ref
			b.recorded("Settle", p.Ref.RunID, &st)
			if st.Kind == job.KindWait {
				b.listens("Settle", p.Ref.RunID, last)
			}
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
		if old.State == job.Running && b.runs[id].State != job.Running && b.runs[id].State != job.Cancelled && b.runs[id].State != job.Suspended && !but(old) {
			b.wrong("%s took %s from %s, whose lease ends at %s", op, b.label(id), b.label(old.Worker), b.leases[old.Worker])
		}
	}
}

func (b *book) deleted(id string) {
	b.mu.Lock()
	b.touched[id] = true
	b.mu.Unlock()
	b.refresh("Delete")
	b.forgotten(id) // who asked for it without hearing so may ask again, and it begins anew
}
