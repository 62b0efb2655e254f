package sim_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// view is a process's connection to the database: every operation waits for its
// turn, meets its fate and is entered in the book. What has reached the database
// is done though its caller has given up and fills the batch anew: the view works
// on a copy, as a database does on the bytes it was sent.
type view struct {
	store.Store // the database, or one with a planted bug
	p           *process
}

func mutate[R any](v *view, ctx context.Context, op, what string, do func(context.Context) (R, error), saw func(R)) (R, error) {
	return act(v.p, ctx, call{op: op, what: what}, do, saw)
}

func read[R any](v *view, ctx context.Context, op, what string, do func(context.Context) (R, error)) (R, error) {
	return act(v.p, ctx, call{op: op, what: what, reads: true}, do, nil)
}

// none makes an operation without a result one with.
func none(err error) (struct{}, error) { return struct{}{}, err }

// labels names runs as the simulation does, so that two simulations of one seed
// name them alike.
func (v *view) labels(ids ...string) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(v.p.w.book.label(id))
	}
	return b.String()
}

func (v *view) Enqueue(ctx context.Context, batch []store.EnqueueParams) ([]store.EnqueueResult, error) {
	batch = slices.Clone(batch)
	v.p.w.book.name(batch)
	return mutate(v, ctx, "Enqueue", v.entries(batch),
		func(ctx context.Context) ([]store.EnqueueResult, error) { return v.Store.Enqueue(ctx, batch) },
		func(res []store.EnqueueResult) { v.p.w.book.enqueued("Enqueue", batch, res) })
}

func (v *view) EnqueueIf(ctx context.Context, batch []store.EnqueueParams, accept func([]store.EnqueueResult) error) ([]store.EnqueueResult, error) {
	batch = slices.Clone(batch)
	v.p.w.book.name(batch)
	return mutate(v, ctx, "EnqueueIf", v.entries(batch),
		func(ctx context.Context) ([]store.EnqueueResult, error) { return v.Store.EnqueueIf(ctx, batch, accept) },
		func(res []store.EnqueueResult) { v.p.w.book.enqueued("EnqueueIf", batch, res) })
}

func (v *view) entries(batch []store.EnqueueParams) string {
	ids := make([]string, len(batch))
	for i := range batch {
		ids[i] = batch[i].ID
	}
	return v.labels(ids...)
}

func (v *view) FindLive(ctx context.Context, name, tenant, key string) (string, error) {
	return read(v, ctx, "FindLive", name+" "+key, func(ctx context.Context) (string, error) { return v.Store.FindLive(ctx, name, tenant, key) })
}

func (v *view) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	p.Queues = slices.Clone(p.Queues)
	var b strings.Builder
	for _, q := range p.Queues {
		fmt.Fprintf(&b, "%s:%d ", q.Queue, q.Limit)
	}
	version := v.p.version.Load()
	return mutate(v, ctx, "Claim", b.String(),
		func(ctx context.Context) (store.ClaimResult, error) { return v.Store.Claim(ctx, p) },
		func(res store.ClaimResult) { v.p.w.book.claimed(version, p, res) })
}

func (v *view) Settle(ctx context.Context, batch []store.SettleParams) ([]store.SettleResult, error) {
	batch = slices.Clone(batch)
	var b strings.Builder
	for i := range batch {
		fmt.Fprintf(&b, "%s#%d:%s ", v.p.w.book.label(batch[i].Ref.RunID), batch[i].Ref.Claim, batch[i].Outcome)
		v.p.w.book.name(batch[i].Enqueue)
		if in := batch[i].Invoke; in != nil {
			for j := range in.Start {
				v.p.w.book.name([]store.EnqueueParams{in.Start[j].Run})
			}
		}
	}
	return mutate(v, ctx, "Settle", b.String(),
		func(ctx context.Context) ([]store.SettleResult, error) { return v.Store.Settle(ctx, batch) },
		func(res []store.SettleResult) { v.p.w.book.settled(batch, res) })
}

func (v *view) ListSteps(ctx context.Context, id string) ([]job.Step, error) {
	return read(v, ctx, "ListSteps", v.labels(id), func(ctx context.Context) ([]job.Step, error) { return v.Store.ListSteps(ctx, id) })
}

func (v *view) Unwinds(ctx context.Context, ids []string) (map[string]job.Unwind, error) {
	return read(v, ctx, "Unwinds", v.labels(ids...), func(ctx context.Context) (map[string]job.Unwind, error) { return v.Store.Unwinds(ctx, ids) })
}

func (v *view) SaveSteps(ctx context.Context, batch []store.StepParams) ([]store.StepResult, error) {
	batch = slices.Clone(batch)
	var b strings.Builder
	for i := range batch {
		fmt.Fprintf(&b, "%s#%d/%s:%s ", v.p.w.book.label(batch[i].Ref.RunID), batch[i].Ref.Claim, batch[i].Name, batch[i].Status)
		v.p.w.book.name(batch[i].Enqueue)
	}
	return mutate(v, ctx, "SaveSteps", b.String(),
		func(ctx context.Context) ([]store.StepResult, error) { return v.Store.SaveSteps(ctx, batch) },
		func(res []store.StepResult) { v.p.w.book.saved(batch, res) })
}

func (v *view) Register(ctx context.Context, p store.RegisterParams) error {
	_, err := mutate(v, ctx, "Register", "",
		func(ctx context.Context) (struct{}, error) { return none(v.Store.Register(ctx, p)) },
		func(struct{}) { v.p.w.book.registered(v.p, p) })
	return err
}

func (v *view) Renew(ctx context.Context, p store.RenewParams) (store.RenewResult, error) {
	return mutate(v, ctx, "Renew", "",
		func(ctx context.Context) (store.RenewResult, error) { return v.Store.Renew(ctx, p) },
		func(res store.RenewResult) { v.p.w.book.renewed(p, res) })
}

func (v *view) Deregister(ctx context.Context, id string) error {
	_, err := mutate(v, ctx, "Deregister", "",
		func(ctx context.Context) (struct{}, error) { return none(v.Store.Deregister(ctx, id)) },
		func(struct{}) { v.p.w.book.deregistered(v.p, id) })
	return err
}

func (v *view) LetGo(ctx context.Context, ref job.Ref) error {
	_, err := mutate(v, ctx, "LetGo", v.labels(ref.RunID),
		func(ctx context.Context) (struct{}, error) { return none(v.Store.LetGo(ctx, ref)) },
		func(struct{}) { v.p.w.book.refresh("LetGo") })
	return err
}

func (v *view) Reclaim(ctx context.Context, p store.ReclaimParams) (store.ReclaimResult, error) {
	if follow := p.Follow; follow != nil {
		p.Follow = func(r job.Run) ([]store.EnqueueParams, error) {
			runs, err := follow(r)
			v.p.w.book.name(runs)
			return runs, err
		}
	}
	return mutate(v, ctx, "Reclaim", "",
		func(ctx context.Context) (store.ReclaimResult, error) { return v.Store.Reclaim(ctx, p) },
		func(res store.ReclaimResult) { v.p.w.book.reclaimed(res) })
}

func (v *view) Purge(ctx context.Context, limit int) (int, error) {
	return mutate(v, ctx, "Purge", "",
		func(ctx context.Context) (int, error) { return v.Store.Purge(ctx, limit) },
		func(n int) {
			if n > 0 {
				v.p.w.book.refresh("Purge")
			}
		})
}

func (v *view) LeadSchedules(ctx context.Context, p store.LeadParams) (store.LeadResult, error) {
	return mutate(v, ctx, "LeadSchedules", "",
		func(ctx context.Context) (store.LeadResult, error) { return v.Store.LeadSchedules(ctx, p) },
		func(res store.LeadResult) { v.p.w.book.led(p, res) })
}

func (v *view) ReleaseSchedules(ctx context.Context, holder string) error {
	_, err := mutate(v, ctx, "ReleaseSchedules", "",
		func(ctx context.Context) (struct{}, error) { return none(v.Store.ReleaseSchedules(ctx, holder)) },
		func(struct{}) { v.p.w.book.unled(holder) })
	return err
}

func (v *view) FireSchedule(ctx context.Context, p store.FireParams) (store.FireResult, error) {
	v.p.w.book.name(p.Runs)
	return mutate(v, ctx, "FireSchedule", p.Name+" "+p.Occurrence.UTC().Format(time.TimeOnly),
		func(ctx context.Context) (store.FireResult, error) { return v.Store.FireSchedule(ctx, p) },
		func(res store.FireResult) { v.p.w.book.fired(p, res) })
}

func (v *view) PauseSchedule(ctx context.Context, p store.ScheduleParams) (store.Schedule, error) {
	return mutate(v, ctx, "PauseSchedule", p.Name,
		func(ctx context.Context) (store.Schedule, error) { return v.Store.PauseSchedule(ctx, p) },
		func(store.Schedule) { v.p.w.book.paused(p.Name, true) })
}

func (v *view) ResumeSchedule(ctx context.Context, p store.ScheduleParams) (store.Schedule, error) {
	return mutate(v, ctx, "ResumeSchedule", p.Name,
		func(ctx context.Context) (store.Schedule, error) { return v.Store.ResumeSchedule(ctx, p) },
		func(store.Schedule) { v.p.w.book.paused(p.Name, false) })
}

func (v *view) Cancel(ctx context.Context, p store.CancelParams) (job.Run, error) {
	op := "Cancel"
	if p.NoCompensate {
		op = cancelHard
	}
	return mutate(v, ctx, "Cancel", v.labels(p.ID),
		func(ctx context.Context) (job.Run, error) { return v.Store.Cancel(ctx, p) },
		func(job.Run) { v.p.w.book.refresh(op) })
}

func (v *view) Requeue(ctx context.Context, p store.RequeueParams) (job.Run, error) {
	return mutate(v, ctx, "Requeue", v.labels(p.ID)+" "+p.FromStep,
		func(ctx context.Context) (job.Run, error) { return v.Store.Requeue(ctx, p) },
		func(job.Run) { v.p.w.book.requeued(p) })
}

func (v *view) Restart(ctx context.Context, p store.RestartParams) (store.EnqueueResult, error) {
	batch := []store.EnqueueParams{p.Run}
	v.p.w.book.name(batch)
	return mutate(v, ctx, "Restart", v.labels(p.Of),
		func(ctx context.Context) (store.EnqueueResult, error) { return v.Store.Restart(ctx, p) },
		func(res store.EnqueueResult) { v.p.w.book.enqueued("Restart", batch, []store.EnqueueResult{res}) })
}

func (v *view) Promote(ctx context.Context, p store.PromoteParams) (job.Run, error) {
	return mutate(v, ctx, "Promote", v.labels(p.ID),
		func(ctx context.Context) (job.Run, error) { return v.Store.Promote(ctx, p) },
		func(job.Run) { v.p.w.book.refresh("Promote") })
}

func (v *view) Delete(ctx context.Context, p store.DeleteParams) (job.Run, error) {
	return mutate(v, ctx, "Delete", v.labels(p.ID),
		func(ctx context.Context) (job.Run, error) { return v.Store.Delete(ctx, p) },
		func(job.Run) { v.p.w.book.deleted(p.ID) })
}

func (v *view) Publish(ctx context.Context, batch []store.EventParams) ([]store.EventResult, error) {
	batch = slices.Clone(batch)
	return mutate(v, ctx, "Publish", fmt.Sprint(len(batch)),
		func(ctx context.Context) ([]store.EventResult, error) { return v.Store.Publish(ctx, batch) },
		func([]store.EventResult) {
			v.p.w.book.refresh("Publish")
			v.p.w.book.published("Publish", batch)
		})
}

func (v *view) PendingEvent(ctx context.Context, tenant string, p store.WaitParams) (bool, error) {
	return read(v, ctx, "PendingEvent", p.Topic+" "+p.Key, func(ctx context.Context) (bool, error) { return v.Store.PendingEvent(ctx, tenant, p) })
}

func (v *view) PurgeEvents(ctx context.Context, limit int) (int, error) {
	return mutate(v, ctx, "PurgeEvents", "",
		func(ctx context.Context) (int, error) { return v.Store.PurgeEvents(ctx, limit) },
		func(n int) {
			v.p.w.count("events purged", n)
			v.p.w.book.kept("PurgeEvents")
		})
}

func (v *view) Get(ctx context.Context, id string) (job.Run, error) {
	return read(v, ctx, "Get", v.labels(id), func(ctx context.Context) (job.Run, error) { return v.Store.Get(ctx, id) })
}

func (v *view) List(ctx context.Context, p store.ListParams) ([]job.Run, error) {
	return read(v, ctx, "List", string(p.State), func(ctx context.Context) ([]job.Run, error) { return v.Store.List(ctx, p) })
}

func (v *view) ListSchedules(ctx context.Context) ([]store.Schedule, error) {
	return read(v, ctx, "ListSchedules", "", v.Store.ListSchedules)
}

func (v *view) Now(ctx context.Context) (time.Time, error) {
	return read(v, ctx, "Now", "", v.Store.Now)
}

func (v *view) InvokeDepth(ctx context.Context, id string, most int) (int, error) {
	return read(v, ctx, "InvokeDepth", v.labels(id), func(ctx context.Context) (int, error) { return v.Store.InvokeDepth(ctx, id, most) })
}

func (v *view) SaveLogs(ctx context.Context, batch []store.LogParams) error {
	batch = slices.Clone(batch)
	ids := make([]string, len(batch))
	for i := range batch {
		ids[i] = v.labels(batch[i].Ref.RunID)
	}
	slices.Sort(ids) // they come from a map
	_, err := mutate(v, ctx, "SaveLogs", strings.Join(ids, " "),
		func(ctx context.Context) (struct{}, error) { return none(v.Store.SaveLogs(ctx, batch)) },
		func(struct{}) { v.p.w.book.savedLogs(batch) })
	return err
}

func (v *view) ListLogs(ctx context.Context, p store.ListLogsParams) (store.ListLogsResult, error) {
	return read(v, ctx, "ListLogs", v.labels(p.Run), func(ctx context.Context) (store.ListLogsResult, error) { return v.Store.ListLogs(ctx, p) })
}

func (v *view) SetPause(ctx context.Context, p store.PauseParams) (bool, error) {
	return mutate(v, ctx, "SetPause", fmt.Sprint(p.Kind, " ", p.Name, " ", !p.Resume),
		func(ctx context.Context) (bool, error) { return v.Store.SetPause(ctx, p) },
		func(changed bool) { v.p.w.book.setPause(p, changed) })
}

func (v *view) ListPauses(ctx context.Context) ([]store.Pause, error) {
	return read(v, ctx, "ListPauses", "", v.Store.ListPauses)
}

func (v *view) Age(ctx context.Context, p store.AgeParams) (int, error) {
	return mutate(v, ctx, "Age", p.Queue,
		func(ctx context.Context) (int, error) { return v.Store.Age(ctx, p) },
		func(n int) {
			if n > 0 {
				v.p.w.book.refresh("Age")
			}
		})
}

func (v *view) ForgetSchedule(ctx context.Context, p store.ScheduleParams) error {
	_, err := mutate(v, ctx, "ForgetSchedule", p.Name,
		func(ctx context.Context) (struct{}, error) { return none(v.Store.ForgetSchedule(ctx, p)) }, nil)
	return err
}

func (v *view) ListEvents(ctx context.Context, p store.ListEventsParams) ([]job.Event, error) {
	return read(v, ctx, "ListEvents", p.Topic, func(ctx context.Context) ([]job.Event, error) { return v.Store.ListEvents(ctx, p) })
}

func (v *view) ListWorkers(ctx context.Context) ([]store.Worker, error) {
	return read(v, ctx, "ListWorkers", "", v.Store.ListWorkers)
}

func (v *view) Attempts(ctx context.Context, id string) ([]job.AttemptRecord, error) {
	return read(v, ctx, "Attempts", v.labels(id), func(ctx context.Context) ([]job.AttemptRecord, error) { return v.Store.Attempts(ctx, id) })
}

func (v *view) Audit(ctx context.Context, p store.AuditParams) ([]store.AuditEntry, error) {
	return read(v, ctx, "Audit", p.Subject, func(ctx context.Context) ([]store.AuditEntry, error) { return v.Store.Audit(ctx, p) })
}

// Stats feed gauges, on which nothing depends.
func (v *view) Stats(ctx context.Context) (store.Stats, error) {
	if v.p.dead.Load() {
		<-ctx.Done()
		return store.Stats{}, ctx.Err()
	}
	return v.Store.Stats(ctx)
}

// Wakes loses some: they are hints.
func (v *view) Wakes(wake func(queue string)) (stop func()) {
	return v.Store.Wakes(func(queue string) {
		if !v.p.dead.Load() && (v.p.w.calm.Load() || v.p.w.dice("wake", v.p.name, queue, time.Now()).IntN(4) > 0) {
			wake(queue)
		}
	})
}
