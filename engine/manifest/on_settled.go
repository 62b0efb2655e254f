package manifest

import (
	"strings"

	"github.com/jobrunner/runner/engine/job"
)

// onSettled reads which job is told how runs of j end, and has it checked once
// every job is known.
func (l *loader) onSettled(j *Job, t *table) {
	name, ok := t.text("on_settled", "notify")
	if !ok {
		return
	}
	j.OnSettled = name
	l.later = append(l.later, func() {
		if !l.declared(t, "on_settled", "jobs", name) {
			return
		}
		told := l.m.Jobs[name]
		if circle := l.circle(j); circle != nil {
			t.bad("on_settled", CodeValue, "leads back to "+j.Name+": "+strings.Join(circle, " → "), "end the chain: the last job of it says no on_settled")
			return
		}
		l.fitsEnding(j, told, t)
	})
}

// circle is the way from j back to j, or nil.
func (l *loader) circle(j *Job) []string {
	way := []string{j.Name}
	for at := j; at != nil && at.OnSettled != "" && len(way) <= len(l.m.Jobs); at = l.m.Jobs[at.OnSettled] {
		if way = append(way, at.OnSettled); at.OnSettled == j.Name {
			return way
		}
	}
	return nil
}

// fitsEnding checks that told can be a job whose input is an ending of j: what
// it declares is held against its runs when they are claimed.
func (l *loader) fitsEnding(j, told *Job, t *table) {
	if tpl := told.Tenant; !tpl.None {
		switch {
		case tpl.p != nil && tpl.p.source != "{tenant}":
			t.bad("on_settled", CodeTemplate, "names "+told.Name+", whose tenant "+quote(tpl.p.source)+" is not that of the ended run",
				`write tenant = "{tenant}" for `+told.Name+` (or "none")`)
			return
		case tpl.p != nil && j.Tenant.None:
			t.bad("on_settled", CodeTemplate, "names "+told.Name+", which takes {tenant}, but runs of "+j.Name+" have none",
				`write tenant = "none" for `+told.Name)
			return
		}
	}
	for _, e := range endings(j) {
		input, err := e.Told()
		if err == nil {
			err = told.Input.Validate(input)
		}
		if err != nil {
			t.bad("on_settled", CodeSchema, "names "+told.Name+", whose input does not take an ending such as "+string(input)+": "+messageOf(err),
				"have the schema accept run, job, tenant, outcome, state, code, attempts, output and output_bytes, or leave it out")
			return
		}
		if _, err := told.Gate(input, e.Run); err != nil {
			t.bad("on_settled", CodeTemplate, "names "+told.Name+", whose concurrency key cannot be made of an ending such as "+string(input)+": "+messageOf(err),
				"make it of run, job, outcome, state or attempts (or tenant, if there is one)")
			return
		}
	}
}

// endings are one of each form.
func endings(j *Job) []job.Ending {
	e := job.Ending{Run: "01890a5d-ac96-774b-bcce-b302099a8057", Job: j.Name, Tenant: "t", Attempts: 1}
	if j.Tenant.None {
		e.Tenant = ""
	}
	done, large, dead, failed, lost := e, e, e, e, e
	done.Outcome, done.State, done.Output = job.Completed, job.Done, []byte("null")
	large.Outcome, large.State, large.OutputBytes = job.Completed, job.Done, job.MaxEndingOutput+1
	dead.Outcome, dead.State, dead.Code = job.DeadLettered, job.Dead, "X_EXAMPLE"
	failed.Outcome, failed.State = job.Dropped, job.Failed
	lost.Outcome, lost.State, lost.Code = job.Orphaned, job.Dead, job.CodeWorkerLost
	return []job.Ending{done, large, dead, failed, lost}
}
