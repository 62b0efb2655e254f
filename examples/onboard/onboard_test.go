package main

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/guest/guesttest"
)

func TestOnboardTakesThreeDaysAndOneOfEachStep(t *testing.T) {
	r := guesttest.Run(t, "onboard-org", Input{OrgID: "acme", Plan: "team"}, guesttest.Options{Tenant: "acme", Jobs: []string{"send-digest"}})
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	if r.Elapsed != coolOff || r.Attempts != 1 {
		t.Errorf("took %v and %d attempts", r.Elapsed, r.Attempts)
	}
	var bodies []string
	for _, l := range r.Logs {
		bodies = append(bodies, l.Text)
	}
	if want := []string{"body provision", "body welcome-mail", "body schedule-digest"}; !slices.Equal(bodies, want) {
		t.Errorf("bodies %q, want %q", bodies, want)
	}
	if len(r.Enqueued) != 1 || r.Enqueued[0].Job != "send-digest" || r.Enqueued[0].DelayMS != time.Hour.Milliseconds() {
		t.Fatalf("enqueued %+v", r.Enqueued)
	}
	if got, want := string(r.Enqueued[0].Input), `{"orgId":"acme","url":"https://acme.example.com"}`; got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	var out Output
	if err := json.Unmarshal(r.Output, &out); err != nil || out.Org.Seats != 25 || out.DigestRun == "" || out.DoneAt.Sub(time.Date(2030, 1, 4, 0, 0, 0, 0, time.UTC)) < 0 {
		t.Errorf("%s, %v", r.Output, err)
	}
}

func TestUnknownPlanFailsAtOnceWithAFix(t *testing.T) {
	r := guesttest.Run(t, "onboard-org", Input{OrgID: "acme", Plan: "gold"}, guesttest.Options{})
	e, ok := r.Err.(*abi.Error)
	if !ok || e.Code != "X_PLAN_UNKNOWN" || e.Fix != "use trial, team or enterprise" || r.Attempts != 1 {
		t.Errorf("%v after %d attempts", r.Err, r.Attempts)
	}
	if len(r.Enqueued) != 0 || len(r.Sleeps) != 0 {
		t.Errorf("it went on: %+v %+v", r.Enqueued, r.Sleeps)
	}
}

func TestDigestIsRenderedAndDelivered(t *testing.T) {
	r := guesttest.Run(t, "send-digest", Digest{OrgID: "acme", URL: "https://acme.example.com"}, guesttest.Options{})
	if r.Err != nil || string(r.Output) != `{"subject":"Your first days at https://acme.example.com"}` || len(r.Steps) != 2 {
		t.Errorf("%s, %v, %+v", r.Output, r.Err, r.Steps)
	}
}
