package storetest

import (
	"maps"
	"slices"
	"time"

	"github.com/jobrunner/runner/engine/store"
)

func (m *model) lead(p store.LeadParams) (out store.LeadResult) {
	for _, sc := range p.Schedules {
		row := m.schedules[sc.Name]
		switch {
		case row == nil:
			row = &store.Schedule{Name: sc.Name, Watermark: m.now}
			m.schedules[sc.Name] = row
		case row.Holder != p.Holder && row.LeasedUntil.After(m.now) && !p.Alone:
			continue
		case row.Spec != sc.Spec && m.now.After(row.Watermark):
			row.Watermark = m.now
		}
		row.Spec, row.Holder, row.LeasedUntil = sc.Spec, p.Holder, m.now.Add(p.Lease)
		out.Now = m.now
		out.Led = append(out.Led, *row)
	}
	return out
}

func (m *model) releaseSchedules(holder string) {
	for _, row := range m.schedules {
		if row.Holder == holder {
			row.Holder, row.LeasedUntil = "", time.Time{}
		}
	}
}

// standing are the runs that have an occurrence skipped.
func (m *model) standing(p store.FireParams) (out []string) {
	if !p.SkipIfLive {
		return nil
	}
	for _, r := range m.runs {
		if r.State.Live() && store.IsOccurrenceKey(p.Name, r.Key) &&
			slices.ContainsFunc(p.Runs, func(e store.EnqueueParams) bool { return e.Job == r.Job && e.Tenant == r.Tenant }) {
			out = append(out, r.ID)
		}
	}
	return out
}

// fire follows a fire that was skipped for a run, if it was, and answers what it
// does.
func (m *model) fire(p store.FireParams, skippedFor string) (out store.FireResult) {
	row := m.schedules[p.Name]
	if row == nil || row.Holder != p.Holder || !row.Watermark.Equal(p.From) || !row.PausedAt.IsZero() || p.Occurrence.After(m.now) {
		return out
	}
	out.Moved = true
	row.Watermark = p.To
	row.Missed += int64(p.Missed)
	if len(m.standing(p)) > 0 {
		row.SkippedOccurrence, row.SkippedFor = p.Occurrence, skippedFor
		row.Skips++
		out.SkippedFor = skippedFor
		return out
	}
	row.FiredOccurrence, row.FiredAt = p.Occurrence, m.now
	row.Fires++
	out.Runs = m.enqueue(p.Runs)
	return out
}

func (m *model) pauseSchedule(name, by string) store.Schedule {
	row := m.schedules[name]
	if row == nil {
		row = &store.Schedule{Name: name, Watermark: m.now}
		m.schedules[name] = row
	}
	if row.PausedAt.IsZero() {
		row.PausedAt, row.PausedBy = m.now, by
	}
	return *row
}

// listSchedules are all rows, ordered by name.
func (m *model) listSchedules() (out []store.Schedule) {
	for _, name := range slices.Sorted(maps.Keys(m.schedules)) {
		out = append(out, *m.schedules[name])
	}
	return out
}
