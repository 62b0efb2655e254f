package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// key is one step of one run.
type key struct{ run, step string }

// audit compares what the database had recorded when the server was killed with
// what the servers' logs say has run before and after.
type audit struct {
	atKill, atEnd []run
	before, after map[key]int // bodies by step
}

// recorded is what was known of a step: its bodies that ended, and whether it
// was over.
type recorded struct {
	ended int
	over  bool
}

func records(runs []run) map[key]recorded {
	all := map[key]recorded{}
	for _, r := range runs {
		for _, s := range r.History {
			rec := recorded{ended: s.Failures}
			switch s.Status {
			case "completed":
				rec.ended++
				rec.over = true
			case "failed":
				rec.over = true
			}
			all[key{r.ID, s.Name}] = rec
		}
	}
	return all
}

// steps sorts out what ran: repeated bodies belong to steps that were over when
// the body ran again, cut are bodies that the kill ended before their record.
func (a audit) steps() (repeated, cut []key) {
	kill, end := records(a.atKill), records(a.atEnd)
	for _, k := range sorted(a.before, a.after) {
		extraBefore := a.before[k] - kill[k].ended
		extraAfter := a.after[k] - (end[k].ended - kill[k].ended)
		switch {
		case kill[k].over && (a.after[k] > 0 || extraBefore > 0), extraBefore > 1, extraAfter > 0:
			repeated = append(repeated, k)
		case extraBefore == 1:
			cut = append(cut, k)
		}
	}
	return repeated, cut
}

func sorted(counts ...map[key]int) []key {
	all := map[key]bool{}
	for _, m := range counts {
		for k := range m {
			all[k] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(x, y key) int { return strings.Compare(x.run+x.step, y.run+y.step) })
}

func byJob(runs []run, job string) []run {
	var some []run
	for _, r := range runs {
		if job == "" || r.Job == job {
			some = append(some, r)
		}
	}
	return some
}

func count(runs []run, job, state string) int {
	n := 0
	for _, r := range byJob(runs, job) {
		if r.State == state {
			n++
		}
	}
	return n
}

func bodies(m map[key]int) int {
	n := 0
	for _, times := range m {
		n += times
	}
	return n
}

// report prints what came of it and answers how many expectations did not hold.
func (a audit) report(w io.Writer, want wanted) (failed int) {
	expect := func(what string, got, wanted int) {
		mark := "ok"
		if got != wanted {
			mark = fmt.Sprintf("NOT OK, expected %d", wanted)
			failed++
		}
		_, _ = fmt.Fprintf(w, "  %-58s %5d  %s\n", what, got, mark)
	}
	tell := func(what string, n int) { _, _ = fmt.Fprintf(w, "  %-58s %5d\n", what, n) }

	for _, job := range slices.Sorted(maps.Keys(want)) {
		total := 0
		for _, state := range slices.Sorted(maps.Keys(want[job])) {
			expect(job+" "+state, count(a.atEnd, job, state), want[job][state])
			total += want[job][state]
		}
		expect(job+" in all", len(byJob(a.atEnd, job)), total)
	}
	attempts, orphaned, steps := 0, 0, 0
	for _, r := range a.atEnd {
		attempts += r.Claims
		steps += len(r.History)
		for _, at := range r.Attempts {
			if at.Outcome == "orphaned" {
				orphaned++
			}
		}
	}
	repeated, cut := a.steps()
	tell("attempts, those that resumed after a sleep included", attempts)
	tell("steps and sleeps recorded", steps)
	tell("step bodies that ran, on both servers", bodies(a.before)+bodies(a.after))
	expect("attempts that the kill ended", orphaned, count(a.atKill, "", "running"))
	tell("steps that the kill cut short, so that they ran again", len(cut))
	expect("steps whose body ran again after it was recorded", len(repeated), 0)
	for _, k := range repeated {
		_, _ = fmt.Fprintf(w, "    run %s, step %s: %d bodies before the kill, %d after\n", k.run, k.step, a.before[k], a.after[k])
	}
	if count(a.atKill, "", "running") == 0 {
		_, _ = fmt.Fprintln(w, "  NOT OK: nothing was under way when the server was killed, so nothing was shown")
		failed++
	}
	return failed
}

// interesting is a run that the kill interrupted, if there is one with a step
// that it had recorded before.
func (a audit) interesting() string {
	id := ""
	for _, r := range a.atEnd {
		for _, at := range r.Attempts {
			if at.Outcome != "orphaned" {
				continue
			}
			id = r.ID
			if len(r.History) > 0 && a.before[key{r.ID, r.History[0].Name}] > 0 && a.after[key{r.ID, r.History[0].Name}] == 0 {
				return id
			}
		}
	}
	if id == "" && len(a.atEnd) > 0 {
		id = a.atEnd[0].ID
	}
	return id
}
