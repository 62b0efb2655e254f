package queue

import (
	"context"

	"github.com/jobrunner/runner/engine/store"
)

// record is a step or the end of an attempt, on its way to a store.Recorder.
type record struct {
	step   *store.StepParams
	settle *store.SettleParams
}

// recorded answers a record.
type recorded struct {
	step   store.StepResult
	settle store.SettleResult
}

func recordSize(r *record) int {
	if r.step != nil {
		return stepSize(r.step)
	}
	return settleSize(r.settle)
}

// recordInto writes records of both kinds together.
func (q *Queue) recordInto(to store.Recorder) func(ctx context.Context, batch []record) ([]recorded, error) {
	return func(ctx context.Context, batch []record) ([]recorded, error) {
		var steps []store.StepParams
		var settles []store.SettleParams
		for _, r := range batch {
			if r.step != nil {
				steps = append(steps, *r.step)
			} else {
				settles = append(settles, *r.settle)
			}
		}
		saved, settled, err := to.Record(ctx, steps, settles)
		if err != nil {
			return nil, err
		}
		if len(saved) != len(steps) || len(settled) != len(settles) {
			return nil, nil // which is refused as another number than was given
		}
		out := make([]recorded, len(batch))
		for i, r := range batch {
			if r.step != nil {
				out[i].step, saved = saved[0], saved[1:]
			} else {
				out[i].settle, settled = settled[0], settled[1:]
			}
		}
		if len(steps) > 0 {
			q.metrics.Batch("step", len(steps))
		}
		if len(settles) > 0 {
			q.metrics.Batch("settle", len(settles))
		}
		return out, nil
	}
}
