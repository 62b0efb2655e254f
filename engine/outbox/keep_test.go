package outbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/engine/internal/enginetest"
	"github.com/jobrunner/runner/engine/metrics"
	"github.com/jobrunner/runner/engine/outbox"
)

// Published rows are deleted after their time, in portions between passes; what
// is to be kept for ever is not looked at.
func TestRelayPurgesWhatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{purged: 2500}
		r := over(t, f, nil)
		start(t, r)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if f.count("purge") != 3 || f.left() != 0 {
			t.Errorf("%d purges left %d rows", f.count("purge"), f.left())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := f.count("purge") - 3; n < 5 || n > 6 {
			t.Errorf("%d purges in an hour", n)
		}
		stop(t, r)

		keeps := over(t, f, func(c *outbox.Config) { c.Keep = -1 })
		before := f.count("purge")
		start(t, keeps)
		time.Sleep(time.Hour)
		synctest.Wait()
		stop(t, keeps)
		if f.count("purge") != before {
			t.Error("it purged what is to be kept")
		}
	})
}

// A count or a purge that fails is said and stops nothing.
func TestFailingCountStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, events := &fake{}, &enginetest.Events{}
		f.fault = func(_ context.Context, op string) error {
			if op == "stats" || op == "purge" {
				return errors.New("denied")
			}
			return nil
		}
		r := over(t, f, func(c *outbox.Config) { c.Logger = events.Logger() })
		start(t, r)
		time.Sleep(time.Minute)
		f.stage(1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(f.done()) != 1 || events.Count("outbox.count-failed") == 0 {
			t.Errorf("published %d; %v", len(f.done()), events.Messages())
		}
		stop(t, r)
	})
}

func TestBacklogIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, registry := &fake{}, prometheus.NewRegistry()
		m, err := metrics.NewOutbox(registry)
		if err != nil {
			t.Fatal(err)
		}
		r := over(t, f, func(c *outbox.Config) { c.Metrics, c.Name = m, "shop" })
		start(t, r)
		synctest.Wait()
		stop(t, r)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			for _, one := range family.GetMetric() {
				if one.GetLabel()[0].GetValue() == "shop" {
					got[family.GetName()] = one.GetGauge().GetValue()
				}
			}
		}
		if got["runner_outbox_parked"] != 3 || got["runner_outbox_oldest_seconds"] != 60 {
			t.Errorf("%v", got)
		}
	})
}
