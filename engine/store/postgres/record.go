package postgres

import (
	"context"
	"errors"

	"github.com/jobrunner/runner/engine/store"
)

var _ store.Recorder = (*Store)(nil)

// Record implements store.Recorder: one round trip and one commit for rows of
// steps and ends of attempts that are nothing more.
func (s *Store) Record(ctx context.Context, steps []store.StepParams, settles []store.SettleParams) ([]store.StepResult, []store.SettleResult, error) {
	moreSteps, err := checkSteps(steps)
	if err != nil {
		return nil, nil, err
	}
	moreSettles, err := checkSettles(settles)
	if err != nil {
		return nil, nil, err
	}
	if moreSteps || moreSettles || len(steps) == 0 || len(settles) == 0 {
		return s.recordApart(ctx, steps, settles)
	}
	stepRounds, rounds := stepRounds(steps), settleRounds(settles, inOrder(len(settles)))
	out, ended := make([]store.StepResult, len(steps)), make([]store.SettleResult, len(settles))
	g := s.newSettling(settles, rounds[0], ended)
	if len(stepRounds) > 1 || len(rounds) > 1 || len(g.family.ended) > 0 {
		return s.recordApart(ctx, steps, settles)
	}
	if err := s.saveOne(ctx, steps, stepRounds[0], out, g); err != nil {
		return nil, nil, err
	}
	g.landed()
	s.notes.later(g.wake)
	if err := s.settledBefore(ctx, settles, ended); err != nil {
		return nil, nil, errors.Join(err, store.ErrUnknown)
	}
	return out, ended, nil
}

// recordApart is Record in two transactions.
func (s *Store) recordApart(ctx context.Context, steps []store.StepParams, settles []store.SettleParams) ([]store.StepResult, []store.SettleResult, error) {
	out, err := s.SaveSteps(ctx, steps)
	if err != nil {
		return nil, nil, err
	}
	ended, err := s.Settle(ctx, settles)
	if err != nil && len(steps) > 0 {
		err = errors.Join(err, store.ErrUnknown) // the steps are in
	}
	return out, ended, err
}
