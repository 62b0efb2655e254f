package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

var epoch = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return epoch.Add(d) }

// retriedRun failed once in its second step, slept and completed.
func retriedRun() history {
	return history{
		run: job.Run{
			ID: "01", Job: "onboard-org", Queue: "default", Tenant: "acme", Key: "onboard:acme", State: job.Done,
			Attempt: 2, MaxAttempts: 5, Claims: 3, EnqueuedBy: "cli", Input: []byte(`{"orgId":"acme","token":"t"}`),
			Output: []byte(`{"ok":true}`), CreatedAt: epoch, StartedAt: after(5 * time.Millisecond),
			ClaimedAt: after(time.Hour), FinishedAt: after(time.Hour + 20*time.Millisecond), RunAt: after(time.Hour),
		},
		attempts: []job.AttemptRecord{
			{Claim: 1, Attempt: 1, Worker: "w1", Outcome: job.Retried, ClaimedAt: after(5 * time.Millisecond), SettledAt: after(40 * time.Millisecond),
				RunAt: after(1040 * time.Millisecond), Error: job.Failure{Code: "X_MAIL", Message: "no route\x1b[31m"}},
			{Claim: 2, Attempt: 2, Worker: "w1", Outcome: job.Slept, ClaimedAt: after(1040 * time.Millisecond), SettledAt: after(1060 * time.Millisecond), RunAt: after(time.Hour)},
			{Claim: 3, Attempt: 2, Worker: "w2", Outcome: job.Completed, ClaimedAt: after(time.Hour), SettledAt: after(time.Hour + 20*time.Millisecond)},
		},
		steps: []job.Step{
			{Name: "create", Seq: 1, Kind: job.KindStep, Status: job.StepCompleted, Output: []byte(`{"id":7,"secret":"s"}`), StartedAt: after(6 * time.Millisecond), FinishedAt: after(20 * time.Millisecond)},
			{Name: "mail", Seq: 2, Kind: job.KindStep, Status: job.StepCompleted, Attempts: 1, Output: []byte(`null`), StartedAt: after(25 * time.Millisecond), FinishedAt: after(1050 * time.Millisecond)},
			{Name: "cool-off", Seq: 3, Kind: job.KindSleep, Status: job.StepSleeping, WakeAt: after(time.Hour), StartedAt: after(1060 * time.Millisecond), FinishedAt: after(1060 * time.Millisecond)},
		},
		log: store.ListLogsResult{Dropped: 2, Lines: []job.LogLine{
			{Seq: 3, At: after(30 * time.Millisecond), Attempt: 1, Level: job.LogWarn, Step: "mail", Text: "greylisted\x1b[31m"},
			{Seq: 4, At: after(time.Hour + time.Millisecond), Attempt: 2, Level: job.LogInfo, Text: "awake"},
		}},
	}
}

func TestTimelineTellsWhatHappenedInOrderWithoutSecrets(t *testing.T) {
	var b strings.Builder
	printTimeline(&b, style{}, retriedRun(), redact)
	want := `run       01  done
job       onboard-org
queue     default
tenant    acme
key       onboard:acme
enqueued  2026-03-01T09:00:00.000Z
attempts  2 of 5
input     {"orgId":"acme","token":"[hidden]"}

AT       WHAT            STATE      TOOK  DETAIL
+0.000s  run             enqueued         by cli
+0.005s  attempt 1       claimed          by w1
+0.020s  step create     completed  14ms  {"id":7,"secret":"[hidden]"}
+0.030s  log                              2 earlier lines are not kept any more
+0.030s  log             warn             mail: greylisted�[31m
+0.040s  attempt 1       retried    35ms  X_MAIL: no route�[31m, due again in 1s
+1.040s  attempt 2       claimed          by w1
+1.050s  step mail       completed  1s    1 failed, null
+1.060s  sleep cool-off  sleeping         until 2026-03-01T10:00:00.000Z
+1.060s  attempt 2       suspended  20ms  due again in 59m58s
+1h      attempt 2       claimed          by w2
+1h      log             info             awake
+1h      attempt 2       completed  20ms
+1h      run             done       1h    {"ok":true}
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("timeline (-want +got):\n%s", diff)
	}
}

func TestTimelineOfARunThatCompletedAtOnceShowsItsAttempt(t *testing.T) {
	h := history{run: job.Run{ID: "01", Job: "noop", State: job.Done, Attempt: 1, MaxAttempts: 3, Claims: 1,
		CreatedAt: epoch, StartedAt: after(time.Millisecond), ClaimedAt: after(time.Millisecond), FinishedAt: after(2 * time.Millisecond), Output: []byte("1")}}
	var got []string
	for _, e := range h.events(whole) {
		got = append(got, e.what+" "+e.state)
	}
	if diff := cmp.Diff([]string{"run enqueued", "attempt 1 claimed", "attempt 1 completed", "run done"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A subscription is recorded as a wait that is over at once, and has missed nothing.
func TestTimelineCallsASubscriptionNoTimeout(t *testing.T) {
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	wait := func(name string, until time.Duration) string {
		e := stepEvent(job.Step{
			Name: name, Kind: job.KindWait, Status: job.StepTimedOut, Topic: "paid", EventKey: "7", StartedAt: at, FinishedAt: at.Add(until), WakeAt: at.Add(until),
		}, whole)
		return e.what + ", " + e.state + ", " + e.detail
	}
	for want, got := range map[string]string{
		"subscribe paid, subscribed, for paid 7": wait("subscribe paid", 0),
		"wait look, nothing yet, for paid 7":     wait("look", 0),
		"wait answer, timed-out, for paid 7":     wait("answer", time.Hour),
	} {
		if got != want {
			t.Errorf("shown as %q, want %q", got, want)
		}
	}
}
