package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// link is a child that a run waits for: from the settle that starts it to the end
// of either.
type link struct {
	parent  string
	name    string // of the parent's record
	abandon bool
}

// started notes the children that a settle which landed has started, and that
// its run waits.
func (b *book) started(before map[string]job.Run, p *store.SettleParams) {
	if p.Invoke == nil {
		return
	}
	parent := p.Ref.RunID
	if b.runs[parent].State == job.Suspended {
		b.parked[parent] = p.Invoke.Most
	}
	for i := range p.Invoke.Start {
		c := &p.Invoke.Start[i]
		if _, was := before[c.Run.ID]; was {
			continue
		}
		if _, is := b.runs[c.Run.ID]; !is {
			if r := b.steps(parent)[c.Name]; r.Status != job.StepFailed || r.Error.Code != job.CodeDuplicate {
				b.wrong("%s started no child for %s, whose record is %s", b.label(parent), c.Name, r.Status)
			}
			continue
		}
		for _, l := range b.links {
			if l.parent == parent && l.name == c.Name {
				b.wrong("%s has two children for %s", b.label(parent), c.Name)
			}
		}
		b.links[c.Run.ID] = link{parent, c.Name, c.Abandon}
	}
}

// families checks that who waits for whom is told of ends, and woken when it is
// to be, in the commit of the end.
func (b *book) families(op string, before map[string]job.Run) {
	for _, r := range b.runs {
		b.waits(op, r)
	}
	for _, child := range slices.Sorted(maps.Keys(b.links)) {
		l := b.links[child]
		r, is := b.runs[child]
		p, there := b.runs[l.parent]
		ended := !is || r.State.Terminal()
		switch {
		case !there || p.State.Terminal() || b.cancelling(l.parent):
			delete(b.links, child)
			if !ended && !l.abandon && b.cancelling(child) {
				ended, b.bereft[child] = true, true // when it is undone
			}
			switch {
			case l.abandon:
				if is && r.State == job.Cancelled && before[child].State.Live() && !b.isTouched(child) {
					b.wrong("%s: %s was to outlive its parent %s, and is cancelled with it", op, b.label(child), b.label(l.parent))
				}
			case !ended:
				b.wrong("%s: %s ended, and its child %s goes on", op, b.label(l.parent), b.label(child))
			case is && r.State == job.Cancelled:
				b.bereft[child] = true
			}
		case ended:
			delete(b.links, child)
			b.answered(op, child, l)
		}
	}
	for id, r := range b.runs {
		if _, was := before[id]; !was && r.State == job.Cancelled && !b.bereft[id] {
			b.wrong("%s inserted %s as cancelled, and its parent has not ended", op, b.label(id))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.parked)) {
		most, live := b.parked[id], 0
		for _, l := range b.links {
			if l.parent == id {
				live++
			}
		}
		r, is := b.runs[id]
		parked := is && r.State == job.Suspended
		if !parked {
			delete(b.parked, id)
		}
		switch {
		case parked && live <= most:
			b.wrong("%s: %s is to wake when %d of its children are live, and %d are", op, b.label(id), most, live)
		case is && !parked && r.State.Live() && live > most:
			b.wrong("%s woke %s, of whose children %d are live, and not %d", op, b.label(id), live, most)
		}
	}
}

// answered checks the record of a child that ended before its parent.
func (b *book) answered(op, child string, l link) {
	rec := b.steps(l.parent)[l.name]
	r, is := b.runs[child]
	switch {
	case is && r.State == job.Done:
		if rec.Status != job.StepCompleted || !bytes.Equal(rec.Output, b.output(child)) {
			b.wrong("%s: child %s is done with %s, and %s of its parent is %s with %s", op, b.label(child), b.output(child), l.name, rec.Status, rec.Output)
		}
	case rec.Status != job.StepFailed:
		b.wrong("%s: child %s is %s, and %s of its parent is %s", op, b.label(child), r.State, l.name, rec.Status)
	}
}

// waits checks that a run which is suspended until no time that will come waits
// for children.
func (b *book) waits(op string, r job.Run) {
	if _, parked := b.parked[r.ID]; r.State == job.Suspended && r.RunAt.Sub(b.w.now()) > store.InvokeHorizon/2 && !parked {
		b.wrong("%s: %s is suspended until %s, and waits for no child", op, b.label(r.ID), r.RunAt)
	}
}

// toldKey is the key of the run that is told of an end of r.
func toldKey(r job.Run) string { return "settled:" + r.ID + ":" + strconv.FormatInt(r.Claims, 10) }

// endings checks that each end for good of a run whose job says on_settled is
// told by the commit that ends it, once, and that nothing else is.
func (b *book) endings(op string, ended, appeared []job.Run) {
	due := map[string]bool{}
	for _, r := range ended {
		if b.w.manifest.Jobs[r.Job].OnSettled != "" {
			due[toldKey(r)] = true
		}
	}
	for _, r := range appeared {
		if !strings.HasPrefix(r.Key, "settled:") {
			continue
		}
		if !due[r.Key] || b.told[r.Key] {
			b.wrong("%s: %s is told of an end that is not that commit's, or was told of before", op, b.label(r.ID))
		}
		b.told[r.Key] = true
		delete(due, r.Key)
	}
	for _, key := range slices.Sorted(maps.Keys(due)) {
		id, _, _ := strings.Cut(strings.TrimPrefix(key, "settled:"), ":")
		b.wrong("%s ended %s, and told nobody", op, b.label(id))
	}
}

// endingLabel is what the run is called that is told of an end.
func (b *book) endingLabel(p *store.EnqueueParams) string {
	var e job.Ending
	if !strings.HasPrefix(p.Key, "settled:") || json.Unmarshal(p.Input, &e) != nil {
		return ""
	}
	return b.labelOf(e.Run) + "!" + p.Key[strings.LastIndexByte(p.Key, ':')+1:]
}

func (b *book) isTouched(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.touched[id]
}

// steps reads a run's records.
func (b *book) steps(run string) map[string]job.Step {
	steps, err := b.w.truth.ListSteps(context.Background(), run)
	if err != nil {
		b.wrong("the history of %s cannot be read: %v", b.label(run), err)
	}
	out := make(map[string]job.Step, len(steps))
	for _, s := range steps {
		out[s.Name] = s
	}
	return out
}

// deaf is how long a handler is that hears of nothing.
const deaf = 3 * time.Minute
