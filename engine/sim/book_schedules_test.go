package sim_test

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// scheduleBook is the account of one schedule.
type scheduleBook struct {
	begun     bool
	watermark time.Time
	paused    bool
	runs      map[int64]int // by occurrence: runs that were ever made for it
	fires     int64
	skips     int64
	missed    int64
	holder    string    // who leads it
	until     time.Time // of that lease
}

func (b *book) schedule(name string) *scheduleBook {
	s := b.schedules[name]
	if s == nil {
		s = &scheduleBook{runs: map[int64]int{}}
		b.schedules[name] = s
	}
	return s
}

func (b *book) paused(name string, is bool) { b.schedule(name).paused = is }

// led learns where a schedule begins, and who leads it until when: nobody else.
func (b *book) led(p store.LeadParams, res store.LeadResult) {
	for _, row := range res.Led {
		s := b.schedule(row.Name)
		if s.holder != p.Holder && s.until.After(b.w.now()) {
			b.wrong("schedule %s is led by another at %s, and the lease of who led it ends at %s", row.Name, b.w.now(), s.until)
		}
		s.holder, s.until = p.Holder, b.w.now().Add(p.Lease)
		if s.begun && !row.Watermark.Equal(s.watermark) {
			b.wrong("schedule %s is at %s, and was at %s", row.Name, row.Watermark, s.watermark)
		}
		s.begun, s.watermark = true, row.Watermark
	}
}

// unled ends the leases that a holder gave up.
func (b *book) unled(holder string) {
	for _, s := range b.schedules {
		if s.holder == holder {
			s.holder, s.until = "", time.Time{}
		}
	}
}

// occurs counts a run that is an occurrence's.
func (b *book) occurs(op string, r job.Run) {
	name, rest, ok := strings.Cut(r.Key, ":")
	if !ok || !store.IsOccurrenceKey(name, r.Key) {
		return
	}
	text, _, _ := strings.Cut(rest, ":")
	ms, _ := strconv.ParseInt(text, 10, 64)
	s := b.schedule(name)
	if s.runs[ms]++; s.runs[ms] > 1 {
		b.wrong("%s made run number %d of the occurrence %s of schedule %s", op, s.runs[ms], time.UnixMilli(ms).UTC(), name)
	}
}

// fired checks that a watermark moves on from where it was, past occurrences that
// all have become something.
func (b *book) fired(p store.FireParams, res store.FireResult) {
	b.refresh("FireSchedule")
	if !res.Moved {
		return
	}
	s := b.schedule(p.Name)
	made := s.runs[p.Occurrence.UnixMilli()]
	switch {
	case s.begun && !p.From.Equal(s.watermark):
		b.wrong("schedule %s moved from %s, and was at %s", p.Name, p.From, s.watermark)
	case p.Occurrence.After(b.w.now()):
		b.wrong("schedule %s fired %s at %s", p.Name, p.Occurrence, b.w.now())
	case s.paused:
		b.wrong("schedule %s fired while it was paused", p.Name)
	case res.SkippedFor == "" && made != 1:
		b.wrong("schedule %s fired %s and left %d runs", p.Name, p.Occurrence, made)
	case res.SkippedFor != "" && made != 0:
		b.wrong("schedule %s skipped %s and left %d runs", p.Name, p.Occurrence, made)
	case res.SkippedFor != "" && !b.runs[res.SkippedFor].State.Live():
		b.wrong("schedule %s skipped %s for a run that is %s", p.Name, p.Occurrence, b.runs[res.SkippedFor].State)
	}
	n := 0
	decl := b.w.declared[p.Name]
	for t := decl.Next(p.From); !t.After(p.To); t = decl.Next(t) {
		n++
	}
	if n != 1+p.Missed {
		b.wrong("schedule %s moved past %d occurrences and accounts for %d", p.Name, n, 1+p.Missed)
	}
	s.begun, s.watermark = true, p.To
	s.missed += int64(p.Missed)
	if res.SkippedFor == "" {
		s.fires++
	} else {
		s.skips++
	}
}

// checkSchedules compares the rows with the account.
func (b *book) checkSchedules() {
	rows, err := b.w.truth.ListSchedules(context.Background())
	if err != nil {
		b.wrong("the schedules cannot be read: %v", err)
	}
	for _, row := range rows {
		s := b.schedule(row.Name)
		if row.Fires != s.fires || row.Skips != s.skips || row.Missed != s.missed {
			b.wrong("schedule %s has %d fires, %d skips, %d missed; %d, %d, %d were seen", row.Name, row.Fires, row.Skips, row.Missed, s.fires, s.skips, s.missed)
		}
		if behind := b.w.now().Sub(row.Watermark); row.PausedAt.IsZero() && behind > 5*time.Minute {
			b.wrong("schedule %s is %s behind", row.Name, behind)
		}
	}
}
