package manifest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// Defaults of a job.
const (
	DefaultTimeout     = 10 * time.Minute
	DefaultStepTimeout = time.Minute
	DefaultRetention   = 30 * day
)

// longest bounds durations that may be long: it catches a unit mistake and
// stays far from overflow when added to any instant.
const longest = abi.MaxSleep

// job reads [jobs.NAME].
func (l *loader) job(name string, t *table) {
	j := &Job{Name: name, Handler: name, Queue: DefaultQueue}
	l.m.Jobs[name] = j

	if module, ok := t.text("module", name); ok {
		j.Module = module
		l.later = append(l.later, func() { l.declared(t, "module", "modules", module) })
	}
	if handler, ok := t.text("handler", name); ok {
		if j.Handler = handler; handler == "" || len(handler) > abi.MaxName {
			t.bad("handler", CodeName, fmt.Sprintf("must have 1 to %d bytes", abi.MaxName), "leave it out for "+name)
		}
	}
	if queue, ok := t.text("queue", DefaultQueue); ok {
		if problem := nameProblem(queue); problem != "" {
			t.bad("queue", CodeName, "names a queue that "+problem, "a name is 1 to 100 of a-z 0-9 . _ - and starts with a letter or a digit")
		} else {
			j.Queue = queue
		}
	}
	l.later = append(l.later, func() {
		if _, ok := l.m.Queues[j.Queue]; !ok {
			l.m.Queues[j.Queue] = Queue{Name: j.Queue, Workers: DefaultWorkers, AgeAfter: DefaultAgeAfter}
		}
	})
	if path, ok := t.text("input", "schemas/"+name+".json"); ok {
		j.Input = l.schema(t, path)
	}
	j.Tenant = l.template(t, "tenant", `{orgId}`, ParseTenant, j.Input)
	j.Key = l.template(t, "key", name+`:{orgId}`, ParseKey, j.Input)
	l.missing(name, t)

	j.Timeout = t.duration("timeout", DefaultTimeout, time.Millisecond, 7*day)
	j.StepTimeout = t.duration("step_timeout", min(DefaultStepTimeout, j.Timeout), time.Millisecond, 7*day)
	if j.StepTimeout > j.Timeout {
		t.bad("step_timeout", CodeValue, fmt.Sprintf("is %s, longer than the attempt it is part of: timeout is %s", FormatDuration(j.StepTimeout), FormatDuration(j.Timeout)), "lower it, or raise timeout")
	}
	j.Concurrency = l.concurrency(t, j.Input)
	j.Rate = rate(t, `{ limit = 50, per = "1s" }`, false)
	j.Priority = t.count("priority", 0, job.MinPriority, job.MaxPriority, "0; lower runs first")
	j.OnDeploy = OnDeploy(t.choice("on_deploy", string(Pin), string(Pin), string(Latest)))
	j.Compensates = t.flag("compensates", false)
	l.onSettled(j, t)
	j.Retention = t.duration("retention", DefaultRetention, time.Second, longest)
	j.Retry = l.retry(t)
	l.steps(j, t)
	t.close()
}

// steps reads [jobs.NAME.steps.STEP].
func (l *loader) steps(j *Job, of *table) {
	all := of.table("steps", `{ charge = { timeout = "10s", retry = { attempts = 2 } } }`)
	if all == nil {
		return
	}
	j.Steps = map[string]StepPolicy{}
	for _, name := range all.n.keys {
		t := all.table(name, `{ timeout = "10s" }`)
		if t == nil {
			continue
		}
		if name == "" || len(name) > abi.MaxName {
			all.bad(name, CodeName, fmt.Sprintf("is no name of a step, which has 1 to %d bytes", abi.MaxName), "write the name that the handler gives the step")
		}
		p := StepPolicy{Timeout: t.duration("timeout", j.StepTimeout, time.Millisecond, 7*day)}
		if p.Timeout > j.Timeout {
			t.bad("timeout", CodeValue, fmt.Sprintf("is %s, longer than the attempt it is part of: timeout of the job is %s", FormatDuration(p.Timeout), FormatDuration(j.Timeout)), "lower it, or raise the job's")
		}
		if v := t.n.children["retry"]; v != nil && v.kind == kindTable {
			if v.children["dead_letter"] != nil {
				t.bad("retry", CodeValue, "has dead_letter, which is the job's to say", "write it in the retry of the job")
			}
			policy := l.retry(t)
			if p.Retry = &policy; policy.Attempts > j.Retry.Attempts {
				t.bad("retry", CodeValue, fmt.Sprintf("has %d attempts, more than the run has: %d", policy.Attempts, j.Retry.Attempts), "lower them, or raise those of the job")
			}
		} else if v != nil {
			t.table("retry", `{ attempts = 2, delay = "5s" }`)
		}
		t.close()
		j.Steps[name] = p
	}
}

// mostConcurrent bounds what may be asked for: each run at a time is counted.
const mostConcurrent = 1_000_000

// concurrency reads a job's limit: a number, or a table with a key.
func (l *loader) concurrency(t *table, schema *Schema) (c Concurrency) {
	if v := t.n.children["concurrency"]; v == nil || v.kind != kindTable {
		c.Limit = t.count("concurrency", 0, 1, mostConcurrent, "no limit")
		return c
	}
	const example = `{ limit = 1, key = "{accountId}" }`
	of := t.table("concurrency", example)
	c.Limit = of.count("limit", 1, 1, mostConcurrent, "1")
	c.Keyed = of.n.children["key"] != nil
	if c.Keyed {
		c.Key = l.template(of, "key", "{accountId}", ParseLimitKey, schema)
		if v := of.n.children["key"]; v.kind == kindString && v.text == "" {
			of.bad("key", CodeTemplate, "is empty", "leave it out for one limit over all runs of the job")
		}
	} else {
		of.get("key")
	}
	c.Fail = of.choice("when_busy", "wait", "wait", "fail") == "fail"
	if c.Fail && !c.Keyed {
		of.bad("when_busy", CodeValue, `is "fail" without a key`, "name the key whose holder a run fails for, as in "+example)
	}
	of.close()
	return c
}

// retry reads a job's retry table.
func (l *loader) retry(of *table) job.RetryPolicy {
	p := job.DefaultRetry
	t := of.table("retry", `{ attempts = 5, backoff = "exponential", delay = "1s", max_delay = "10m", jitter = true }`)
	if t == nil {
		return p
	}
	p.Attempts = t.count("attempts", p.Attempts, 1, job.MostAttempts, fmt.Sprintf("%d, write 1 for no retry", p.Attempts))
	p.Backoff = job.Backoff(t.choice("backoff", string(p.Backoff), string(job.BackoffFixed), string(job.BackoffLinear), string(job.BackoffExponential)))
	p.Delay = t.duration("delay", p.Delay, 0, longest)
	p.MaxDelay = t.duration("max_delay", p.MaxDelay, time.Millisecond, longest)
	if p.Delay > p.MaxDelay {
		most := "max_delay is " + FormatDuration(p.MaxDelay)
		if t.n.children["max_delay"] == nil {
			most += " when it is left out"
		}
		t.bad("delay", CodeValue, fmt.Sprintf("is %s, longer than the longest wait: %s", FormatDuration(p.Delay), most), "raise max_delay to at least "+FormatDuration(p.Delay))
	}
	p.Jitter = t.flag("jitter", p.Jitter)
	p.DeadLetter = t.flag("dead_letter", p.DeadLetter)
	t.close()
	return p
}

// missing refuses a job that leaves out what has no default. There is none
// because each possible one is wrong: a tenant that is not stated opens a hole
// between tenants, a key that is not stated runs twice what was sent twice.
func (l *loader) missing(name string, t *table) {
	var keys, fixes []string
	for _, k := range []struct{ key, fix string }{
		{"module", `module = "` + name + `"`},
		{"tenant", `tenant = "{orgId}" (or "none")`},
		{"key", `key = "` + name + `:{orgId}" (or "{run.id}" to never deduplicate)`},
	} {
		if v := t.n.children[k.key]; v == nil || v.kind == kindString && v.text == "" {
			keys, fixes = append(keys, k.key), append(fixes, k.fix)
		}
	}
	if len(keys) == 0 {
		return
	}
	code := CodeDeclaration
	if len(keys) == 1 {
		switch keys[0] {
		case "tenant":
			code = CodeTenantMissing
		case "key":
			code = CodeKeyRequired
		}
	}
	at := t.n.at
	if v := t.n.children[keys[0]]; v != nil {
		at = v.at
	}
	all := keys[0]
	if n := len(keys); n > 1 {
		all = strings.Join(keys[:n-1], ", ") + " and " + keys[n-1]
	}
	t.c.add(at, code, t.path, "job "+name+" does not say its "+all, "write "+strings.Join(fixes, ", "))
}

// template reads and checks a template; an absent or empty one is missing's.
func (l *loader) template(t *table, key, example string, parse func(string) (Template, error), schema *Schema) Template {
	source, ok := t.text(key, example)
	if !ok || source == "" {
		return Template{}
	}
	tpl, err := parse(source)
	if err != nil {
		l.refuse(t, key, "is no template", err)
		return Template{}
	}
	if tpl.p != nil {
		for _, path := range tpl.p.paths {
			if problem := schema.fieldProblem(path); problem != "" {
				t.bad(key, CodeTemplate, "takes {"+strings.Join(path, ".")+"}, but "+problem, "declare and require it in the schema, or take another field")
			}
		}
	}
	if key == "tenant" && !tpl.None && tpl.Constant() {
		fix := ""
		switch {
		case strings.EqualFold(source, "none"):
			fix = `write "none"`
		case schema != nil && schema.fieldProblem([]string{source}) == "":
			fix = "write {" + source + "}"
		}
		if fix != "" {
			t.bad(key, CodeTemplate, "is "+quote(source)+" for every run, which is hardly meant", fix)
		}
	}
	return tpl
}

// refuse reports an error of a value's own parser.
func (l *loader) refuse(t *table, key, what string, err error) {
	var e *abi.Error
	if errors.As(err, &e) {
		t.bad(key, e.Code, what+": "+e.Message, e.Fix)
		return
	}
	t.bad(key, CodeValue, what+": "+err.Error(), "")
}

// messageOf is an error's text without its code and fix.
func messageOf(err error) string {
	var e *abi.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

// schema compiles the schema that a job names.
func (l *loader) schema(t *table, path string) *Schema {
	if problem := l.outside(path); problem != "" {
		t.bad("input", CodeSchema, problem, "keep the schema in the manifest's folder or below, and name it relative to it")
		return nil
	}
	if l.root == nil {
		t.bad("input", CodeSchema, "cannot be read: the manifest has no folder", "")
		return nil
	}
	if s, ok := l.schemas[path]; ok { // several jobs, one problem
		return s
	}
	s, files, err := loadSchema(l.root, path)
	for _, f := range files {
		l.m.Files = append(l.m.Files, filepath.Join(filepath.Dir(l.m.Path), f))
	}
	if err != nil {
		t.bad("input", CodeSchema, "is no usable JSON Schema: "+messageOf(err), "correct the path or the schema; it is JSON Schema 2020-12 in a file of the manifest's folder")
	}
	l.schemas[path] = s
	return s
}
