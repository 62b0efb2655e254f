package postgres

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var (
	qEnqueue  = named("enqueue")
	qInputs   = named("insert_inputs")
	qCheckNew = named("check_new")
)

// inlineInput is the largest input, in bytes, that lives in its run's row.
// Claim and settle move the row, so a larger one is kept apart, for one more
// insert and lookup.
const inlineInput = 1 << 10

// entries is a batch on its way in.
type entries struct {
	batch   []store.EnqueueParams
	ids     []uuid
	keyed   bool // some have a key that is not their own id
	byID    bool // some have a key that is an id: their own, or another
	tangled bool // an entry's key is the id of another entry
	new     bool // every id is new, and no key is the text of another: nothing to check
	results []store.EnqueueResult
	soon    []bool // inserted, and due within the second
}

// newEntries refuses what could not be stored as the id it is.
func newEntries(batch []store.EnqueueParams) (*entries, error) {
	b := &entries{batch: batch, ids: make([]uuid, len(batch)), new: true}
	for i := range batch {
		p := &batch[i]
		b.new = b.new && p.Minted
		var ok bool
		if b.ids[i], ok = parseUUID(p.ID); !ok {
			return nil, store.NoID("id", p.ID)
		}
		if _, ok := parseUUID(p.Parent); !ok && p.Parent != "" {
			return nil, store.NoID("parent", p.Parent)
		}
		if p.Key == "" {
			continue
		}
		own := p.Key == p.ID
		b.keyed = b.keyed || !own
		if _, isID := parseUUID(p.Key); isID {
			b.byID = true
			b.tangled = b.tangled || !own
			b.new = b.new && own
		}
	}
	b.tangled = b.tangled && b.tangle()
	b.results = make([]store.EnqueueResult, len(batch))
	b.soon = make([]bool, len(batch))
	return b, nil
}

// tangle reports whether an entry's key is the id of another entry.
func (b *entries) tangle() bool {
	ids := map[string]bool{}
	for i := range b.batch {
		ids[b.batch[i].ID] = true
	}
	for i := range b.batch {
		if p := &b.batch[i]; p.Key != p.ID && ids[p.Key] {
			return true
		}
	}
	return false
}

// storedKey is how an entry's key is kept: NULL for none, "" for its own id.
func storedKey(p *store.EnqueueParams) *string {
	if p.Key != "" && p.Key == p.ID {
		return new(string)
	}
	return encOrNull(p.Key)
}

// inKeys reports whether an entry's key is a row of live_keys.
func inKeys(p *store.EnqueueParams) bool { return p.Key != "" && p.Key != p.ID }

// clear forgets the answers to some entries.
func (b *entries) clear(which []int) {
	for _, i := range which {
		b.results[i], b.soon[i] = store.EnqueueResult{}, false
	}
}

// queues are those of some entries that got work to do within the second.
func (b *entries) queues(which []int) []string {
	var out []string
	for _, i := range which {
		if q := b.batch[i].Queue; b.soon[i] && !slices.Contains(out, q) {
			out = append(out, q)
		}
	}
	return out
}

// picked are the ids of some entries, as an argument.
func (b *entries) picked(which []int) []pgtype.UUID {
	out := make([]pgtype.UUID, len(which))
	for n, i := range which {
		out[n] = b.ids[i].param()
	}
	return out
}

// all are the indexes of every entry.
func (b *entries) all() []int { return inOrder(len(b.batch)) }

// insert are the statements that insert some entries, whose keys may be taken
// already; inserted is called with each that was.
func (b *entries) insert(which []int, taken bool, inserted func(id uuid, state job.State, soon bool)) []call {
	n := len(which)
	var (
		jobs, queues, tenants    = make([]string, n), make([]string, n), make([]string, n)
		keys, by, traces         = make([]*string, n), make([]*string, n), make([]*string, n)
		gates                    = make([]*string, n)
		inputs                   = make([][]byte, n)
		priorities               = make([]int16, n)
		attempts                 = make([]int32, n)
		times                    = make([]*time.Time, n)
		delays                   = make([]int64, n)
		parents, aliens          = make([]pgtype.UUID, n), make([]pgtype.UUID, n)
		apartIDs                 []pgtype.UUID
		apart                    [][]byte
		lastJob, lastQueue, encJ string
		encQ                     string
	)
	for n, i := range which {
		p := &b.batch[i]
		if n == 0 || p.Job != lastJob {
			lastJob, encJ = p.Job, enc(p.Job)
		}
		if n == 0 || p.Queue != lastQueue {
			lastQueue, encQ = p.Queue, enc(p.Queue)
		}
		jobs[n], queues[n], tenants[n] = encJ, encQ, enc(p.Tenant)
		keys[n], by[n], traces[n] = storedKey(p), encOrNull(p.EnqueuedBy), encOrNull(p.Traceparent)
		gates[n] = encOrNull(p.Gate)
		priorities[n], attempts[n] = int16(p.Priority), int32(p.MaxAttempts)
		parents[n] = idParam(p.Parent)
		if inKeys(p) {
			aliens[n] = idParam(p.Key)
		}
		if p.RunAt.IsZero() {
			delays[n] = ms(p.Delay)
		} else {
			times[n] = timeOrNull(p.RunAt)
		}
		if len(p.Input) > inlineInput {
			apartIDs, apart = append(apartIDs, b.ids[i].param()), append(apart, p.Input)
			continue
		}
		if inputs[n] = p.Input; p.Input == nil {
			inputs[n] = []byte{} // NULL says that it is kept apart
		}
	}
	calls := []call{{
		st:   qEnqueue,
		args: []any{b.picked(which), jobs, queues, tenants, keys, inputs, priorities, attempts, times, delays, parents, by, traces, aliens, taken, gates},
		scan: func(r *row) error {
			inserted(r.id(), job.State(r.text()), r.bool())
			return nil
		},
	}}
	if len(apart) > 0 {
		calls = append(calls, call{st: qInputs, args: []any{apartIDs, apart}})
	}
	return calls
}

// check is the statement that fails if some entries turn out not to be new.
func (b *entries) check(which []int) call {
	low, high := b.ids[which[0]], b.ids[which[0]]
	for _, i := range which {
		if id := b.ids[i]; slices.Compare(id[:], low[:]) < 0 {
			low = id
		} else if slices.Compare(id[:], high[:]) > 0 {
			high = id
		}
	}
	return call{st: qCheckNew, args: append([]any{b.picked(which), low.param(), high.param()}, b.withKey(which)...)}
}

// withKey are the arguments for the entries among which whose key is in live_keys.
func (b *entries) withKey(which []int) []any {
	var ids []pgtype.UUID
	jobs, tenants, keys := []string{}, []string{}, []string{}
	for _, i := range which {
		if p := &b.batch[i]; inKeys(p) {
			ids = append(ids, b.ids[i].param())
			jobs, tenants, keys = append(jobs, enc(p.Job)), append(tenants, enc(p.Tenant)), append(keys, enc(p.Key))
		}
	}
	return []any{ids, jobs, tenants, keys}
}

// enter answers an entry that was inserted.
func (b *entries) enter(i int, state job.State, soon bool) {
	b.results[i], b.soon[i] = store.EnqueueResult{ID: b.batch[i].ID, State: state}, soon
}
