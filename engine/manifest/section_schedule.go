package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// maxJitter bounds what would be another time of day rather than a spread.
const maxJitter = 24 * time.Hour

// sampleRun is an id, and sampleOccurrence an occurrence, like any other.
const sampleRun = "00000000-0000-0000-0000-000000000000"

var sampleOccurrence = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

// schedule reads [schedules.NAME].
func (l *loader) schedule(name string, t *table) {
	s := &Schedule{Name: name}
	l.m.Schedules[name] = s
	if expr, ok := t.text("cron", "0 3 * * *"); ok {
		s.Cron = expr
		spec, err := ParseCron(expr)
		if err != nil {
			t.bad("cron", CodeCron, "is no cron expression: "+err.Error(), `the five fields are minute, hour, day of month, month, day of week, as in "0 3 * * *"`)
		}
		s.Spec = spec
	} else if t.n.children["cron"] == nil {
		t.c.add(t.n.at, CodeRequired, t.name("cron"), "["+t.path+"] has no cron", `write cron = "0 3 * * *"`)
	}
	if zone, ok := t.text("tz", "America/Bogota"); ok {
		loc, err := loadZone(zone)
		if err != nil {
			t.bad("tz", CodeZone, err.Error(), `write an IANA zone, as in "America/Bogota" or "UTC"`)
		}
		s.Zone = loc
	} else if t.n.children["tz"] == nil {
		t.c.add(t.n.at, CodeZone, t.name("tz"), "["+t.path+"] has no tz", `write an IANA zone, as in "America/Bogota" or "UTC"`)
	}
	s.CatchUp = t.choice("catch_up", "skip", "skip", "run-once", "run-all")
	s.MaxCatchUp = t.count("max_catch_up", 10, 1, 1000, "10")
	s.Overlap = t.choice("overlap", "skip", "skip", "allow")
	if s.CatchUp == "run-all" && s.Overlap == "skip" {
		t.bad("catch_up", CodeValue, `is "run-all", which runs each occurrence that was missed, and overlap = "skip" skips all but the first of them`,
			`write overlap = "allow", or catch_up = "run-once"`)
	}
	s.Jitter = t.duration("jitter", 0, time.Millisecond, maxJitter)
	if gap := s.Spec.shortestGap(); s.Jitter > 0 && gap > 0 && s.Jitter >= gap {
		t.bad("jitter", CodeValue, fmt.Sprintf("must be shorter than the %s between two occurrences; this is %s", FormatDuration(gap), FormatDuration(s.Jitter)), "")
	}
	l.enqueues(s, t)
	t.close()
}

// enqueues reads a schedule's enqueue list.
func (l *loader) enqueues(s *Schedule, t *table) {
	const example = `[{ job = "send-digest", input = { kind = "nightly" } }]`
	v := t.get("enqueue")
	switch {
	case v == nil, v.kind == kindList && len(v.items) == 0:
		t.c.add(t.n.at, CodeRequired, t.name("enqueue"), "["+t.path+"] enqueues nothing", "write enqueue = "+example)
		return
	case v.kind != kindList:
		t.wrongType("enqueue", "a list of tables", example)
		return
	case len(v.items) > maxGrants:
		t.bad("enqueue", CodeValue, fmt.Sprintf("has %d entries; at most %d are allowed", len(v.items), maxGrants), "let a job enqueue the rest, a step for each")
		return
	}
	for i, item := range v.items {
		path := indexed(t.name("enqueue"), i)
		if item.kind != kindTable {
			t.c.add(item.at, CodeType, path, path+" must be a table; this is "+item.describe(), "write "+example)
			continue
		}
		e := &table{c: t.c, n: item, path: path}
		run := ScheduledRun{Input: []byte("{}")}
		name, named := e.text("job", "send-digest")
		if item.children["job"] == nil {
			t.c.add(item.at, CodeRequired, e.name("job"), path+" has no job", "write "+example)
		}
		run.Job = name
		if input := e.table("input", `{ kind = "nightly" }`); input != nil {
			b, err := appendJSON(nil, input.n)
			if err != nil {
				e.bad("input", CodeValue, err.Error(), "")
				named = false
			}
			if bad := badOccurrence(b); bad != "" {
				e.bad("input", CodeTemplate, "holds "+quote(bad)+", which an occurrence has not", "it has {occurrence}, {occurrence.date} and {occurrence.unix_ms}")
				named = false
			}
			run.Input = b
		}
		e.close()
		s.Enqueue = append(s.Enqueue, run)
		if named {
			l.later = append(l.later, func() { l.scheduledRun(s, e, run) })
		}
	}
}

// scheduledRun checks an entry against the job it names. All it will ever send
// is known now but for the occurrence, whose texts are all of one shape, so all
// that can be refused is refused now.
func (l *loader) scheduledRun(s *Schedule, e *table, run ScheduledRun) {
	if !l.declared(e, "job", "jobs", run.Job) {
		return
	}
	j := l.m.Jobs[run.Job]
	if j == nil {
		return
	}
	at := "input"
	if e.n.children[at] == nil {
		at = "job"
	}
	input := run.InputAt(sampleOccurrence)
	if err := j.Input.Validate(input); err != nil {
		l.refuse(e, at, "does not suit job "+run.Job, err)
		return
	}
	if _, err := j.Tenant.Render(input, sampleRun); err != nil {
		l.refuse(e, at, "does not suit job "+run.Job, err)
	}
	key, err := j.Key.Render(input, sampleRun)
	if err != nil {
		l.refuse(e, at, "does not suit job "+run.Job, err)
		return
	}
	if n := len(s.Name) + len(":1700000000000:") + len(key); n > job.MaxKey {
		e.bad(at, job.CodeKeyInvalid, fmt.Sprintf("gives job %s a key of %d bytes, the schedule's name and the occurrence included; at most %d are kept", run.Job, n, job.MaxKey),
			"shorten the job's key")
	}
}

// appendJSON writes a TOML value as JSON, keys in the file's order.
func appendJSON(b []byte, n *node) ([]byte, error) {
	var err error
	switch n.kind {
	case kindTable:
		b = append(b, '{')
		for i, key := range n.keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendText(b, key), ':')
			if b, err = appendJSON(b, n.children[key]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case kindList:
		b = append(b, '[')
		for i, item := range n.items {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, item); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case kindString:
		return appendText(b, n.text), nil
	case kindBool:
		return append(b, n.text...), nil
	case kindInt:
		i, err := strconv.ParseInt(n.text, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("holds the number %s, which is beyond 64 bits", clip(n.text))
		}
		return strconv.AppendInt(b, i, 10), nil
	case kindFloat:
		f, err := strconv.ParseFloat(strings.ReplaceAll(n.text, "_", ""), 64)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, fmt.Errorf("holds %s, which JSON cannot", clip(n.text))
		}
		return strconv.AppendFloat(b, f, 'g', -1, 64), nil
	}
	return nil, errors.New("holds the date or time " + clip(n.text) + ", which JSON cannot: put it in quotes")
}

func appendText(b []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil { // a string: cannot fail
		return append(b, '"', '"')
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
