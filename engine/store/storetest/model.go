package storetest

import (
	"cmp"
	"encoding/json"
	"sort"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// model is a store without a database: maps, one op at a time, no regard for
// speed. It is what Random compares a store with.
type model struct {
	now     time.Time
	runs    map[string]*modelRun
	workers map[string]*modelWorker
	purged  map[string]bool
	follow  []store.EnqueueParams // of a batch of settles, until followUp

	schedules map[string]*store.Schedule
	events    []job.Event // that are not purged, in the order of their places
	pauses    map[pauseKey]store.Pause
	rates     map[rateKey]int64
}

type modelRun struct {
	job.Run
	steps    []job.Step
	attempts []job.AttemptRecord
	settled  map[int64]time.Time // claims that their own worker ended, and when the run was due then
	worker   map[int64]string    // who held which claim
	taken    map[int64]bool      // claims that a cancel ended, to have the run undone
	parked   parked
	holds    string // gate that its last claim passed under a limit
	counted  bool   // that claim was under a limit of its tenant
	log      modelLog
}

type modelWorker struct{ expires time.Time }

func newModel() *model {
	return &model{runs: map[string]*modelRun{}, workers: map[string]*modelWorker{}, purged: map[string]bool{}, schedules: map[string]*store.Schedule{}, pauses: map[pauseKey]store.Pause{}, rates: map[rateKey]int64{}}
}

func (m *model) holder(jobName, tenant, key string) *modelRun {
	if key == "" {
		return nil
	}
	for _, r := range m.runs {
		if r.Job == jobName && r.Tenant == tenant && r.Key == key && r.State.Live() {
			return r
		}
	}
	return nil
}

func (m *model) enqueue(batch []store.EnqueueParams) []store.EnqueueResult {
	out := make([]store.EnqueueResult, len(batch))
	for i, p := range batch {
		r := m.runs[p.ID]
		if r == nil {
			r = m.holder(p.Job, p.Tenant, p.Key)
		}
		if r != nil {
			out[i] = store.EnqueueResult{ID: r.ID, Deduped: true, State: r.State}
			continue
		}
		runAt := p.RunAt
		if runAt.IsZero() {
			runAt = m.now.Add(p.Delay)
		}
		state := job.Ready
		if runAt.After(m.now) {
			state = job.Delayed
		}
		m.runs[p.ID] = &modelRun{
			Run: job.Run{
				ID: p.ID, Job: p.Job, Queue: p.Queue, Tenant: p.Tenant, Key: p.Key, State: state, Priority: p.Priority,
				MaxAttempts: p.MaxAttempts, Gate: p.Gate, Input: p.Input, Parent: p.Parent, EnqueuedBy: p.EnqueuedBy, RunAt: runAt, CreatedAt: m.now,
			},
			settled: map[int64]time.Time{}, worker: map[int64]string{}, taken: map[int64]bool{},
		}
		out[i] = store.EnqueueResult{ID: p.ID, State: state}
	}
	return out
}

// wouldDedupe reports whether an entry of the batch would not be a run of its own.
func (m *model) wouldDedupe(batch []store.EnqueueParams) bool {
	for i, p := range batch {
		if m.runs[p.ID] != nil || m.holder(p.Job, p.Tenant, p.Key) != nil {
			return true
		}
		for _, before := range batch[:i] {
			if before.ID == p.ID || p.Key != "" && before.Key == p.Key && before.Job == p.Job && before.Tenant == p.Tenant {
				return true
			}
		}
	}
	return false
}

func (m *model) alive(worker string) bool {
	w := m.workers[worker]
	return w != nil && w.expires.After(m.now)
}

// due reports whether a claim may take the run.
func (m *model) due(r *modelRun) bool {
	return r.State == job.Ready || (r.State == job.Delayed || r.State == job.Suspended) && !r.RunAt.After(m.now)
}

// claim checks that what a store handed out is what it may, and follows it.
// Which tenant comes first is the store's to choose; everything else is not.
func (m *model) claim(worker string, ql store.QueueLimit, got []job.Run) (problem string) {
	byTenant := map[string][]*modelRun{}
	total := 0
	for _, r := range m.runs {
		if r.Queue == ql.Queue && m.due(r) {
			byTenant[r.Tenant] = append(byTenant[r.Tenant], r)
			total++
		}
	}
	if want := min(total, ql.Limit); len(got) != want {
		return "the number of runs is wrong"
	}
	taken := map[string]int{}
	for _, g := range got {
		taken[g.Tenant]++
	}
	for tenant, runs := range byTenant {
		sort.Slice(runs, func(i, j int) bool { return runs[i].before(runs[j]) })
		for other, n := range taken {
			if n > taken[tenant]+1 && taken[tenant] < len(runs) {
				return "tenant " + other + " was served before tenant " + tenant
			}
		}
	}
	for _, g := range got {
		if len(byTenant[g.Tenant]) == 0 || byTenant[g.Tenant][0].ID != g.ID {
			return "run " + g.ID + " was not next of its tenant"
		}
		r := byTenant[g.Tenant][0]
		byTenant[g.Tenant] = byTenant[g.Tenant][1:]
		m.begin(r, worker)
	}
	return ""
}

// before reports whether a run goes before another of its tenant that is held up by
// the same.
func (r *modelRun) before(o *modelRun) bool {
	return cmp.Or(cmp.Compare(r.Rank(), o.Rank()), r.RunAt.Compare(o.RunAt), cmp.Compare(r.ID, o.ID)) < 0
}

// begin begins an attempt.
func (m *model) begin(r *modelRun, worker string) {
	r.Aged = false
	r.State, r.Worker, r.ClaimedAt, r.holds, r.counted = job.Running, worker, m.now, "", false
	r.Attempt++
	r.Claims++
	r.worker[r.Claims] = worker
	if r.StartedAt.IsZero() {
		r.StartedAt = m.now
	}
}

func (m *model) held(ref job.Ref) *modelRun {
	r := m.runs[ref.RunID]
	if r == nil || r.State != job.Running || r.Worker != ref.Worker || r.Claims != ref.Claim {
		return nil
	}
	return r
}

func (m *model) saveStep(r *modelRun, p store.StepParams) store.StepResult {
	out := store.StepResult{Landed: true, At: m.now}
	output := p.Output
	if len(p.Enqueue) > 0 || p.OutputEnqueued {
		out.Enqueued = m.enqueue(p.Enqueue)
	}
	if p.OutputEnqueued {
		results := []abi.EnqueueResult{}
		for i, e := range out.Enqueued {
			results = append(results, abi.EnqueueResult{ID: e.ID, Deduped: e.Deduped && e.ID != p.Enqueue[i].ID})
		}
		output, _ = json.Marshal(results)
		out.Output = output
	}
	st := job.Step{
		Name: p.Name, Seq: len(r.steps) + 1, Kind: p.Kind, Status: p.Status, Attempts: p.Attempts, Output: output,
		StartedAt: m.now.Add(-p.Elapsed), FinishedAt: m.now,
	}
	if p.Error != nil {
		st.Error = *p.Error
	}
	if p.Status == job.StepSleeping {
		st.WakeAt = m.wakeAt(p)
	}
	if p.Module != "" {
		r.Module = p.Module
	}
	if p.Wait != nil {
		res, ok := m.wait(r, p, &st)
		if !ok {
			return res
		}
		out = res
	}
	for i := range r.steps {
		if r.steps[i].Name == p.Name {
			if is := r.steps[i].Status; p.Status == job.StepStarted && (is == job.StepCompleted || is == job.StepFailed) {
				return out
			}
			st.Seq, st.StartedAt = r.steps[i].Seq, r.steps[i].StartedAt
			r.steps[i] = st
			return out
		}
	}
	r.steps = append(r.steps, st)
	r.Steps++
	return out
}

func (m *model) wakeAt(p store.StepParams) time.Time {
	if !p.WakeAt.IsZero() {
		return p.WakeAt
	}
	return m.now.Add(p.Sleep)
}

func (m *model) settle(p store.SettleParams) store.SettleResult {
	r := m.held(p.Ref)
	if r == nil {
		r = m.runs[p.Ref.RunID]
		if r == nil || r.worker[p.Ref.Claim] != p.Ref.Worker {
			return store.SettleResult{}
		}
		runAt, ok := r.settled[p.Ref.Claim]
		return store.SettleResult{Landed: ok, RunAt: runAt}
	}
	m.log(r, p.Ref.Claim, p.Log)
	var saved store.StepResult
	if p.Step != nil {
		saved = m.saveStep(r, *p.Step)
	}
	var runAt time.Time
	if p.To.Live() {
		runAt = m.now
		if p.To != job.Ready {
			runAt = runAt.Add(p.Delay)
		}
		if p.Step != nil && p.Step.Status == job.StepSleeping {
			runAt = m.wakeAt(*p.Step)
		}
		if p.Step != nil && p.Step.Wait != nil {
			runAt = m.wakeAt(*p.Step)
		}
	}
	attempt := r.Attempt
	if !p.Outcome.Counted() {
		r.Attempt = max(r.Attempt-1, 0)
	}
	if p.Outcome != job.Shed {
		r.Orphans = 0
	}
	if p.Module != "" {
		r.Module = p.Module
	}
	if p.Progress != nil {
		r.Progress = *p.Progress
	}
	if p.To == job.Done {
		r.Output = p.Output
	}
	m.end(r, p.To, runAt, p.Retention, p.Error)
	r.settled[p.Ref.Claim] = runAt
	answer := runAt
	if p.Step != nil && p.Step.Wait != nil {
		// What the attempt's record says is when the time would have been over.
		if saved.Status != job.StepWaiting {
			r.State, r.RunAt, answer = job.Ready, m.now, m.now
		}
		r.parked = parked{topic: p.Step.Wait.Topic, key: p.Step.Wait.Key, claim: r.Claims}
	}
	if p.Ref.Claim != 1 || p.Outcome != job.Completed {
		m.record(r, p.Ref, attempt, p.Outcome, runAt, p.Error)
	}
	m.follow = append(m.follow, p.Enqueue...)
	return store.SettleResult{Landed: true, RunAt: answer}
}

// followUp ends a batch of settles.
func (m *model) followUp() {
	m.enqueue(m.follow)
	m.follow = nil
}

func (m *model) end(r *modelRun, to job.State, runAt time.Time, retention time.Duration, failure *job.Failure) {
	r.State, r.Worker, r.Aged = to, "", false
	if failure != nil {
		r.Error = *failure
	}
	if to.Live() {
		r.RunAt = runAt
		return
	}
	r.FinishedAt = m.now
	if retention > 0 {
		r.ExpiresAt = m.now.Add(retention)
	}
}

func (m *model) record(r *modelRun, ref job.Ref, attempt int, outcome job.Outcome, runAt time.Time, failure *job.Failure) {
	rec := job.AttemptRecord{
		Claim: ref.Claim, Attempt: attempt, Worker: ref.Worker, Outcome: outcome, ClaimedAt: r.ClaimedAt, SettledAt: m.now,
		RunAt: runAt, Module: r.Module, StepsAtEnd: r.Steps,
	}
	if failure != nil {
		rec.Error = *failure
	}
	r.attempts = append(r.attempts, rec)
}
