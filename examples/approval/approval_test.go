package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/abi/guest/guesttest"
)

// order runs fulfil-order with events to come, and its children by their handler.
func order(t *testing.T, o Order, events ...abitest.Event) guesttest.Result {
	t.Helper()
	return guesttest.Run(t, "fulfil-order", o, guesttest.Options{
		Jobs: []string{"ship-parcel"}, Events: events,
		Invoke: func(job string, input json.RawMessage) (any, *abi.Failure) {
			r := guesttest.Run(t, job, input, guesttest.Options{})
			if e, ok := r.Err.(*abi.Error); ok {
				return nil, &abi.Failure{Kind: abi.FailTerminal, Code: e.Code, Message: e.Message, Fix: e.Fix}
			}
			return r.Output, nil
		},
	})
}

func answer(key, payload string, after time.Duration) abitest.Event {
	return abitest.Event{Topic: "approval", Key: key, Payload: []byte(payload), After: after}
}

func TestAnApprovedOrderShipsItsParcels(t *testing.T) {
	r := order(t, Order{ID: "o-1", Parcels: []string{"a", "b"}},
		answer("o-2", `{"approved":false,"by":"someone else's"}`, time.Minute), answer("o-1", `{"approved":true,"by":"ann"}`, 26*time.Hour))
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	want := `{"approvedBy":"ann","shipments":[{"address":"a","label":"o-1/a"},{"address":"b","label":"o-1/b"}]}`
	if string(r.Output) != want || r.Elapsed != 26*time.Hour {
		t.Errorf("%s after %v", r.Output, r.Elapsed)
	}
	if len(r.Published) != 1 || r.Published[0].Topic != "order-fulfilled" || r.Published[0].Key != "o-1" || string(r.Published[0].Payload) != want {
		t.Errorf("published %+v", r.Published)
	}
}

func TestAnOrderThatIsNotApprovedShipsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		events []abitest.Event
		code   string
		after  time.Duration
	}{
		"rejected":        {[]abitest.Event{answer("o-1", `{"approved":false,"by":"bob"}`, time.Hour)}, "X_REJECTED", time.Hour},
		"nobody answered": {nil, "X_NOT_APPROVED", patience},
		"too late":        {[]abitest.Event{answer("o-1", `{"approved":true,"by":"ann"}`, patience+time.Second)}, "X_NOT_APPROVED", patience},
	} {
		r := order(t, Order{ID: "o-1", Parcels: []string{"a"}}, c.events...)
		if abi.CodeOf(r.Err) != c.code || r.Elapsed != c.after || len(r.Enqueued) != 0 {
			t.Errorf("%s: %v after %v, children %+v", name, r.Err, r.Elapsed, r.Enqueued)
		}
	}
}

func TestAParcelThatCannotBeShippedFailsItsOrder(t *testing.T) {
	r := order(t, Order{ID: "o-1", Parcels: []string{"a", ""}}, answer("o-1", `{"approved":true,"by":"ann"}`, 0))
	if abi.CodeOf(r.Err) != "X_NO_ADDRESS" || r.Attempts != 1 {
		t.Errorf("%v in attempt %d", r.Err, r.Attempts)
	}
}
