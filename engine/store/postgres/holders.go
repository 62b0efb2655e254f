package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// Who has an entry's id or holds its key.
var (
	qTakeKeys      = named("take_keys")
	qFindStates    = named("find_states")
	qFindHolders   = named("find_holders")
	qFindIDHolders = named("find_id_holders")
	qFindLive      = named("find_live")
)

// takeKeys takes the keys of some entries, or finds out who holds them: those are
// the deduped, whose holders now stay.
func (s *Store) takeKeys(ctx context.Context, tx pgx.Tx, b *entries, which []int) (fresh, deduped []int, err error) {
	type name struct{ job, tenant, key string }
	first := map[name]int{}
	var ids []pgtype.UUID
	var aliens []pgtype.UUID
	jobs, tenants, keys := []string{}, []string{}, []string{}
	for _, i := range which {
		p := &b.batch[i]
		if !inKeys(p) {
			fresh = append(fresh, i)
			continue
		}
		n := name{enc(p.Job), enc(p.Tenant), enc(p.Key)}
		if _, ok := first[n]; ok {
			deduped = append(deduped, i)
			continue
		}
		first[n] = i
		ids, jobs, tenants, keys = append(ids, b.ids[i].param()), append(jobs, n.job), append(tenants, n.tenant), append(keys, n.key)
		aliens = append(aliens, idParam(p.Key))
	}
	err = s.run(ctx, tx, call{st: qTakeKeys, args: []any{ids, jobs, tenants, keys, aliens}, scan: func(r *row) error {
		i := first[name{string(r.next()), string(r.next()), string(r.next())}]
		if r.id() == b.ids[i] {
			fresh = append(fresh, i)
		} else {
			deduped = append(deduped, i)
		}
		return nil
	}})
	return fresh, deduped, err
}

// states are those of the runs that some entries' ids name.
func (s *Store) states(ctx context.Context, q queryer, b *entries, which []int) (map[uuid]job.State, error) {
	known := map[uuid]job.State{}
	err := s.run(ctx, q, call{st: qFindStates, args: []any{b.picked(which)}, scan: func(r *row) error {
		id, text := r.id(), r.text()
		state, err := parseState(text)
		if err != nil {
			return errRowStatus("state", text, id.String())
		}
		known[id] = state
		return nil
	}})
	return known, err
}

// holders answers the entries whose key a live run holds, and returns the rest:
// their id is taken since, or the holder has ended.
func (s *Store) holders(ctx context.Context, q queryer, b *entries, which []int) (left []int, err error) {
	known, err := s.states(ctx, q, b, which)
	if err != nil {
		return nil, err
	}
	var ask []int
	jobs, tenants, keys := []string{}, []string{}, []string{}
	for _, i := range which {
		p := &b.batch[i]
		if _, ok := known[b.ids[i]]; ok || !inKeys(p) {
			left = append(left, i)
			continue
		}
		ask = append(ask, i)
		jobs, tenants, keys = append(jobs, enc(p.Job)), append(tenants, enc(p.Tenant)), append(keys, enc(p.Key))
	}
	err = s.run(ctx, q, call{st: qFindHolders, args: []any{jobs, tenants, keys}, scan: func(r *row) error {
		i := ask[r.int()-1]
		id, text := r.uuid(), r.text()
		state, err := parseState(text)
		if err != nil {
			return errRowStatus("state", text, id)
		}
		b.results[i] = store.EnqueueResult{ID: id, Deduped: true, State: state}
		return nil
	}})
	for _, i := range ask {
		if b.results[i].ID == "" {
			left = append(left, i)
		}
	}
	return left, err
}

// idHolders answers the entries whose key a live run holds by way of an id, its
// own or that of the entry, and returns the rest.
func (s *Store) idHolders(ctx context.Context, q queryer, b *entries, which []int) (left []int, err error) {
	var ask []int
	var ids, aliens []pgtype.UUID
	jobs, tenants := []string{}, []string{}
	for _, i := range which {
		p := &b.batch[i]
		if _, isID := parseUUID(p.Key); !isID {
			continue
		}
		alien := pgtype.UUID{}
		if inKeys(p) {
			alien = idParam(p.Key)
		}
		ask = append(ask, i)
		ids, jobs, tenants, aliens = append(ids, b.ids[i].param()), append(jobs, enc(p.Job)), append(tenants, enc(p.Tenant)), append(aliens, alien)
	}
	if len(ask) == 0 {
		return which, nil
	}
	held := map[int]bool{}
	err = s.run(ctx, q, call{st: qFindIDHolders, args: []any{ids, jobs, tenants, aliens}, scan: func(r *row) error {
		i := ask[r.int()-1]
		id, text := r.uuid(), r.text()
		state, err := parseState(text)
		if err != nil {
			return errRowStatus("state", text, id)
		}
		held[i] = true
		b.results[i] = store.EnqueueResult{ID: id, Deduped: true, State: state}
		return nil
	}})
	for _, i := range which {
		if !held[i] {
			left = append(left, i)
		}
	}
	return left, err
}

// liveArgs are the arguments of the statement find_live.
func liveArgs(jobName, tenant, key string) []any {
	return []any{enc(jobName), enc(tenant), enc(key), idParam(key)}
}

// FindLive implements store.Enqueuer.
func (s *Store) FindLive(ctx context.Context, jobName, tenant, key string) (id string, err error) {
	if key == "" {
		return "", nil
	}
	err = s.read(ctx, func(q queryer) error {
		id = ""
		return s.run(ctx, q, call{st: qFindLive, args: liveArgs(jobName, tenant, key), scan: func(r *row) error {
			id = r.uuid()
			return nil
		}})
	})
	return id, err
}
