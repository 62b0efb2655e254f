package limit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/job"
)

func TestGatesKeepJobsApart(t *testing.T) {
	if KeyGate("a", "b:c") == KeyGate("a:b", "c") {
		t.Error("a colon makes one job's key another's")
	}
	for _, name := range []string{"a", "a:b", "%3A", "a%:", ""} {
		for _, key := range []string{"", "k", "k:l", "%"} {
			kind, gotName, gotKey := ParseGate(KeyGate(name, key))
			if kind != KindKey || gotName != name || gotKey != key {
				t.Errorf("KeyGate(%q, %q) is parsed as %s %q %q", name, key, kind, gotName, gotKey)
			}
		}
		if kind, got, _ := ParseGate(JobGate(name)); kind != KindJob || got != name {
			t.Errorf("JobGate(%q) is parsed as %s %q", name, kind, got)
		}
	}
	// Two builds share a database during a deploy.
	if JobGate("send") != "job:send" || KeyGate("send", "7") != "job-key:send:7" {
		t.Error("the spelling of a gate has changed")
	}
}

func TestARateNeverGivesMore(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, r := range []Rate{{1, time.Second}, {50, time.Second}, {3, time.Second}, {7, 10 * time.Millisecond}, {1000, time.Hour}, {1_000_000, 10 * time.Millisecond}} {
		state, now, starts := int64(0), int64(1e18), []int64{}
		for len(starts) < 2000 {
			n := min(r.Available(state, now), 1+rng.IntN(2*r.Limit), 500)
			if n > 0 {
				state = r.Spend(state, now, n)
				for range n {
					starts = append(starts, now)
				}
			} else if next := r.Next(state, now); next <= now || r.Available(state, next) == 0 || next-now > 1 && r.Available(state, next-1) > 0 {
				t.Fatalf("%v: the next start is said to be in %d ns", r, next-now)
			}
			now += rng.Int64N(2 * int64(r.Per) / int64(r.Limit) * 3)
		}
		for i := range starts {
			for _, j := range []int{i + r.Limit, i + 2*r.Limit, i + 3*r.Limit} {
				if j >= len(starts) {
					continue
				}
				n, span := int64(j-i+1), starts[j]-starts[i]
				if most := int64(r.Limit) + span*int64(r.Limit)/int64(r.Per); n > most {
					t.Fatalf("%v: %d starts in %d ns", r, n, span)
				}
			}
		}
	}
}

// Two versions of a rate share its state, as during a deploy. (L13)
func TestARateThatChangesGivesNoMoreThanTheGreater(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, pair := range [][2]Rate{
		{{3, time.Second}, {5, time.Second}}, {{1, time.Minute}, {60, time.Minute}}, // of one period: the greater
		{{3, 30 * time.Second}, {4, 5 * time.Second}}, {{100, time.Hour}, {10, time.Second}}, // else both together
	} {
		a, b := pair[0], pair[1]
		burst := float64(max(a.Limit, b.Limit))
		if a.Per != b.Per {
			burst = float64(a.Limit + b.Limit)
		}
		speed := max(float64(a.Limit)/float64(a.Per), float64(b.Limit)/float64(b.Per))
		state, now, starts := int64(0), int64(1e18), []int64{}
		for len(starts) < 1000 {
			r := pair[rng.IntN(2)]
			if n := min(r.Available(state, now), 1+rng.IntN(r.Limit)); n > 0 {
				state = r.Spend(state, now, n)
				for range n {
					starts = append(starts, now)
				}
			}
			now += rng.Int64N(int64(1/speed) + 1)
		}
		for i := range starts {
			for j := i; j < len(starts); j++ {
				if n, span := j-i+1, starts[j]-starts[i]; float64(n) > burst+speed*float64(span)+1e-3 {
					t.Fatalf("%v: %d starts in %v", pair, n, time.Duration(span))
				}
			}
		}
	}
}

func TestAClockThatIsSetBackCostsOneWindow(t *testing.T) {
	r := Rate{10, time.Second}
	now := int64(1e18)
	state := r.Spend(0, now, 10)
	back := now - int64(time.Hour)
	if n := r.Available(state, back); n != 0 {
		t.Fatalf("%d may start", n)
	}
	state = r.Spend(state, back, 0)
	if n := r.Available(state, back+int64(time.Second)); n != 10 {
		t.Errorf("%d may start a second later", n)
	}
}

func candidates(tenant, jobName, own string, n int) (out []Candidate) {
	for i := range n {
		out = append(out, Candidate{Run: &job.Run{ID: fmt.Sprintf("%s%s%s%d", tenant, jobName, own, i), Job: jobName, Tenant: tenant, Gate: own}})
	}
	return out
}

func TestTurnsGoRoundTenants(t *testing.T) {
	c := NewClaim(nil, Pauses{}, 5, 0)
	v := c.Decide(map[string][]Candidate{"a": candidates("a", "x", "", 10), "b": candidates("b", "x", "", 1)}, []string{"b", "a"})
	per := map[string]int{}
	for _, t := range v.Take {
		per[t.Run.Tenant]++
	}
	if per["a"] != 4 || per["b"] != 1 || v.Take[0].Run.Tenant != "b" || c.Left() != 0 {
		t.Errorf("took %v, %d left", per, c.Left())
	}
}

func TestARefusalNeedsAHolderAndARunThatNeverBegan(t *testing.T) {
	q := &Queue{Jobs: map[string]Job{"x": {Concurrency: 1, Keyed: true, Fail: true}}}
	gate := KeyGate("x", "k")
	for _, c := range []struct {
		holder string
		claims int64
		want   [3]int // taken, refused, set aside
	}{
		{"", 0, [3]int{0, 0, 1}}, // nobody is known to hold it
		{"other", 0, [3]int{0, 1, 0}},
		{"other", 1, [3]int{0, 0, 1}}, // it slept, or is tried again
		{"x0", 1, [3]int{0, 0, 1}},    // its own lapsed claim
	} {
		claim := NewClaim(q, Pauses{}, 5, 0)
		of := candidates("", "x", gate, 1)
		of[0].Run.ID, of[0].Run.Claims = "x0", c.claims
		claim.Running(gate, 1, c.holder)
		v := claim.Decide(map[string][]Candidate{"": of}, []string{""})
		if got := [3]int{len(v.Take), len(v.Refuse), len(v.Aside)}; got != c.want {
			t.Errorf("held by %q, claimed %d times: %v, want %v", c.holder, c.claims, got, c.want)
		}
	}
}

func TestAHeldUpRunSpendsNothing(t *testing.T) {
	q := &Queue{Jobs: map[string]Job{"x": {Concurrency: 1, Rate: Rate{5, time.Hour}}}, Rate: Rate{5, time.Hour}}
	c := NewClaim(q, Pauses{}, 5, 1e18)
	c.QueueRate(0)
	c.Running(JobGate("x"), 1, "other")
	c.JobRate(RateGate("x"), 0)
	v := c.Decide(map[string][]Candidate{"": candidates("", "x", "", 3)}, []string{""})
	if len(v.Aside) != 3 || len(c.Spent()) != 0 {
		t.Errorf("%d set aside, spent %v", len(v.Aside), c.Spent())
	}
}

func TestPausesHoldJobsAndTenants(t *testing.T) {
	c := NewClaim(nil, Pauses{Jobs: map[string]bool{"x": true}, Tenants: map[string]bool{"b": true}}, 9, 0)
	if n := c.Tenant("b", 0, 0); n != 0 {
		t.Errorf("%d of a paused tenant", n)
	}
	c.Tenant("a", 0, 0)
	v := c.Decide(map[string][]Candidate{"a": append(candidates("a", "x", "", 2), candidates("a", "y", "", 1)...), "b": candidates("b", "y", "", 1)}, []string{"a", "b"})
	if len(v.Take) != 1 || v.Take[0].Run.Job != "y" || v.Take[0].Run.Tenant != "a" || len(v.Aside) != 2 || v.Aside[0].Gate != PauseGate("x") {
		t.Errorf("%+v", v)
	}
}

func FuzzParseGate(f *testing.F) {
	f.Add("job-key:a%3Ab:c:d")
	f.Add("job:")
	f.Fuzz(func(t *testing.T, s string) {
		kind, name, key := ParseGate(s)
		if kind == KindKey {
			if _, n, k := ParseGate(KeyGate(name, key)); n != name || k != key {
				t.Errorf("%q is %q %q, and again %q %q", s, name, key, n, k)
			}
		}
	})
}
