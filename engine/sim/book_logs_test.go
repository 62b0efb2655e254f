package sim_test

import (
	"context"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// line is one that a handler logged, in a text that no other has.
type line struct {
	text string
	ref  job.Ref
}

// logs notes a line of a handler whose process holds the run, as far as the
// database says.
func (b *book) logs(p *process, run, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, is := b.runs[run]
	if is && r.State == job.Running && b.owners[r.Worker] == p && !p.dead.Load() {
		b.lines[run] = append(b.lines[run], line{text, claimOf(&r)})
	}
}

// logged checks the lines of a run after a write of an attempt: none is there twice,
// and with its end all are of a first attempt, which has no records that cover them.
func (b *book) logged(op string, ref job.Ref, ends bool) {
	if len(b.lines[ref.RunID]) == 0 {
		return
	}
	res, err := b.w.truth.ListLogs(context.Background(), store.ListLogsParams{Run: ref.RunID})
	if err != nil {
		b.wrong("the lines of %s cannot be read: %v", b.label(ref.RunID), err)
	}
	count := map[string]int{}
	for _, l := range res.Lines {
		if count[l.Text]++; count[l.Text] > 1 {
			b.wrong("%s kept %q of %s twice", op, l.Text, b.label(ref.RunID))
		}
	}
	for _, l := range b.lines[ref.RunID] {
		if ends && l.ref == ref && ref.Claim == 1 && count[l.text] == 0 {
			b.wrong("%s ended %s#%d, and lost its line %q", op, b.label(ref.RunID), ref.Claim, l.text)
		}
	}
}

// savedLogs checks lines of attempts that go on: those of a claim that
// is held are there.
func (b *book) savedLogs(batch []store.LogParams) {
	for _, p := range batch {
		res, err := b.w.truth.ListLogs(context.Background(), store.ListLogsParams{Run: p.Ref.RunID})
		if err != nil {
			b.wrong("the lines of %s cannot be read: %v", b.label(p.Ref.RunID), err)
		}
		there := map[string]bool{}
		for _, l := range res.Lines {
			there[l.Text] = true
		}
		for _, l := range p.Lines {
			if held := holds(b.runs, p.Ref); held && !there[l.Text] {
				b.wrong("SaveLogs lost %q of %s#%d", l.Text, b.label(p.Ref.RunID), p.Ref.Claim)
			}
		}
		b.logged("SaveLogs", p.Ref, false)
	}
}
