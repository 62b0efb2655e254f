package chaostest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

// effects is the world outside: it notes every effect that a step has, in the
// order in which they arrive, and gives a token for each. It finds out at once
// when a step's body ran although its record was there.
type effects struct {
	server *httptest.Server
	rand   func() float64
	slow   time.Duration // how long an answer takes at most

	mu       sync.Mutex
	traps    map[string]*trap // by process
	runs     map[string]*seen
	effects  int
	late     int // of an attempt that a later one had overtaken
	refused  int
	doubts   []doubt
	problems []string
}

// doubt is a step that ran in an attempt of the number that had its record: the
// same one, or, if that was handed back and so not counted, one before it whose
// guest had not ended. Only the run's timeline tells.
type doubt struct {
	run           string
	step, attempt int
}

// seen is what is known of one run, by step.
type seen struct {
	tokens    [3]map[string]int // token: the attempt it was given to
	committed [3]string         // token that a later step has been told
	by        [3]int            // attempt that was the first to tell it
}

// effect is what the handler sends.
type effect struct {
	Run     string   `json:"run"`
	Tenant  string   `json:"tenant"`
	Attempt int      `json:"attempt"`
	Timed   bool     `json:"timed"`
	Step    int      `json:"step"`
	Before  []string `json:"before"`
}

func newEffects(slow time.Duration, rand func() float64) *effects {
	e := &effects{slow: slow, rand: rand, traps: map[string]*trap{}, runs: map[string]*seen{}}
	e.server = httptest.NewServer(http.HandlerFunc(e.handle))
	return e
}

// handle notes an effect, and answers sooner or later, and now and then with an
// error: what an effect's server did is not what its caller knows. The path is the
// name of the process.
func (e *effects) handle(w http.ResponseWriter, r *http.Request) {
	var in effect
	if err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&in); err != nil || in.Step < 0 || in.Step > 2 || len(in.Before) != in.Step {
		http.Error(w, "no effect", http.StatusBadRequest)
		return
	}
	token := e.note(in)
	wait, refuse := time.Duration(e.rand()*float64(e.slow)), e.rand() < 0.02
	if t := e.trapped(strings.Trim(r.URL.Path, "/"), in); t != nil {
		t.close(append(in.Before, token))
		wait, refuse = 0, t.refuses
		if t.holds {
			select {
			case <-t.free:
			case <-r.Context().Done():
			}
			return
		}
	}
	for _, t := range e.overtakes(in) {
		select {
		case <-t.free:
		case <-r.Context().Done():
			return
		}
	}
	e.mu.Lock()
	if refuse {
		e.refused++
	}
	e.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-r.Context().Done():
		return
	}
	if refuse {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(w, token)
}

func (e *effects) note(in effect) (token string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.effects++
	token = fmt.Sprintf("%s.%d.%d", in.Run, in.Step, e.effects)
	s := e.runs[in.Run]
	if s == nil {
		s = &seen{}
		e.runs[in.Run] = s
	}
	for i, t := range in.Before {
		e.committed(in, s, i, t)
	}
	switch {
	case s.committed[in.Step] == "":
	case in.Attempt < s.by[in.Step]:
		e.late++ // it began before; it cannot know
	case in.Attempt == s.by[in.Step]:
		e.doubts = append(e.doubts, doubt{run: in.Run, step: in.Step, attempt: in.Attempt})
	default:
		e.problem("run %s: step %d ran in attempt %d, although attempt %d had its record", in.Run, in.Step, in.Attempt, s.by[in.Step])
	}
	if s.tokens[in.Step] == nil {
		s.tokens[in.Step] = map[string]int{}
	}
	s.tokens[in.Step][token] = in.Attempt
	return token
}

// committed notes that an attempt has been told a step's record. With mu held.
func (e *effects) committed(in effect, s *seen, step int, token string) {
	switch {
	case s.committed[step] == token:
	case s.committed[step] != "":
		e.problem("run %s: the record of step %d was %s and is %s in attempt %d", in.Run, step, s.committed[step], token, in.Attempt)
	default:
		if _, ok := s.tokens[step][token]; !ok {
			e.problem("run %s: the record of step %d is %s, which nobody was given", in.Run, step, token)
		}
		s.committed[step], s.by[step] = token, in.Attempt
	}
}

// problem notes what must not be. With mu held.
func (e *effects) problem(format string, args ...any) {
	if len(e.problems) < 20 {
		e.problems = append(e.problems, fmt.Sprintf(format, args...))
	}
}

// settleDoubts has the timelines of runs decide what could not be told: an effect
// is late if an attempt of its number was handed back.
func (e *effects) settleDoubts(timeline func(run string) []job.AttemptRecord) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range e.doubts {
		if slices.ContainsFunc(timeline(d.run), func(a job.AttemptRecord) bool { return a.Attempt == d.attempt && a.Outcome == job.Interrupted }) {
			e.late++
		} else {
			e.problem("run %s: step %d ran in attempt %d, which had its record", d.run, d.step, d.attempt)
		}
	}
	e.doubts = nil
}

// recorded checks the records that a run ended with against what was seen.
func (e *effects) recorded(run string, tokens []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.runs[run]
	if s == nil {
		e.problem("run %s is done, and had no effect", run)
		return
	}
	for i, t := range tokens {
		e.committed(effect{Run: run, Attempt: -1}, s, i, t)
	}
}

func TestEffectsNoticeWhatMustNotBe(t *testing.T) {
	e := newEffects(0, func() float64 { return 0 })
	defer e.server.Close()
	a := e.note(effect{Run: "r", Attempt: 1})
	again := e.note(effect{Run: "r", Attempt: 2}) // the record of the first was not made
	b := e.note(effect{Run: "r", Attempt: 2, Step: 1, Before: []string{again}})
	e.note(effect{Run: "r", Attempt: 1}) // the first wakes up from a pause
	if len(e.problems) > 0 || e.late != 1 {
		t.Fatalf("%v, %d late", e.problems, e.late)
	}
	e.recorded("r", []string{again, b})
	if len(e.problems) > 0 {
		t.Fatal(e.problems)
	}
	for what, do := range map[string]func(){
		"a record that changed":   func() { e.note(effect{Run: "r", Attempt: 3, Step: 1, Before: []string{a}}) },
		"a body after its record": func() { e.note(effect{Run: "r", Attempt: 3}) },
		"a body after its own attempt's record": func() {
			e.note(effect{Run: "r", Attempt: 2})
			e.settleDoubts(func(string) []job.AttemptRecord {
				return []job.AttemptRecord{{Claim: 1, Attempt: 1, Outcome: job.Interrupted}, {Claim: 2, Attempt: 1, Outcome: job.Orphaned}, {Claim: 3, Attempt: 2, Outcome: job.Completed}}
			})
		},
		"a token that nobody was given": func() { e.recorded("r", []string{again, b, "made up"}) },
		"a run without effects":         func() { e.recorded("other", nil) },
	} {
		before := len(e.problems)
		if do(); len(e.problems) == before {
			t.Errorf("%s was not noticed", what)
		}
	}
	before := len(e.problems)
	e.note(effect{Run: "r", Attempt: 2})
	e.settleDoubts(func(string) []job.AttemptRecord {
		return []job.AttemptRecord{{Claim: 1, Attempt: 1, Outcome: job.Orphaned}, {Claim: 2, Attempt: 2, Outcome: job.Interrupted}, {Claim: 3, Attempt: 2, Outcome: job.Completed}}
	})
	if len(e.problems) > before || e.late != 2 {
		t.Errorf("of an attempt that was handed back: %v, %d late", e.problems[before:], e.late)
	}
}
