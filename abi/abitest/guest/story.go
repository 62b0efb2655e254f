package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/jobrunner/runner/abi/guest"
)

// Story is what story tells.
type Story struct {
	Attempts  []int         `json:"attempts"` // in which the flaky step ran
	Declined  string        `json:"declined"`
	Child     string        `json:"child"`
	Paid      int           `json:"paid"`
	Timeout   bool          `json:"timeout"`
	Doubled   int           `json:"doubled"`
	Pages     []string      `json:"pages"`
	RunTime   time.Duration `json:"run_time"`
	LastError string        `json:"last_error"`
}

// story uses every durable call, with a failure, waits and replays between.
func story(c *guest.Ctx, in struct{ Name string }) (Story, error) {
	var s Story
	began := c.Now()
	c.Log("story of " + in.Name)

	attempts, err := guest.Step(c, "flaky", func() ([]int, error) {
		c.Log("body flaky")
		if c.Attempt() < 3 {
			return nil, fmt.Errorf("attempt %d fails", c.Attempt())
		}
		return []int{c.Attempt(), c.MaxAttempts()}, nil
	})
	if err != nil {
		return s, err
	}
	s.Attempts = attempts

	err = guest.Do(c, "charge", func() error {
		c.Log("body charge")
		return guest.Terminal(guest.Coded("X_CARD_DECLINED", guest.WithFix(errors.New("no funds"), "another card")))
	}, guest.Once())
	var se *guest.StepError
	if !errors.As(err, &se) || !errors.Is(err, guest.Code("X_CARD_DECLINED")) {
		return s, fmt.Errorf("charge answered %v", err)
	}
	s.Declined = se.Message + "/" + se.Fix

	c.Sleep("cool-off", 72*time.Hour)

	if s.Child, err = guest.Step(c, "hand over", func() (string, error) {
		c.Log("body hand over")
		return c.Enqueue("child", map[string]string{"for": in.Name}, guest.Delay(time.Hour), guest.Key("k"))
	}); err != nil {
		return s, err
	}
	if _, err := c.Enqueue("child", 2); err != nil {
		return s, err
	}
	if err := c.Publish("told", in.Name); err != nil {
		return s, err
	}
	if s.Paid, err = guest.WaitEvent[int](c, "payment", "paid", time.Hour); err != nil {
		return s, err
	}
	_, err = guest.WaitEvent[int](c, "payment", "paid", time.Hour)
	s.Timeout = errors.Is(err, guest.ErrTimeout)
	if s.Doubled, err = guest.Invoke[int](c, "double", 21); err != nil {
		return s, err
	}
	_, err = guest.Invoke[int](c, "broken", 1)
	if !errors.Is(err, guest.ErrFailed) {
		return s, fmt.Errorf("broken child answered %v", err)
	}
	s.LastError = guest.CodeOf(err)

	for i := range 3 {
		page, err := guest.Step(c, "page", func() (string, error) { return fmt.Sprint("page ", i), nil })
		if err != nil {
			return s, err
		}
		s.Pages = append(s.Pages, page)
		c.Progress(float64(i+1)/3, page)
	}
	s.RunTime = c.Now().Sub(began).Truncate(time.Second)
	return s, nil
}

// fail fails in the way its input names.
func fail(_ *guest.Ctx, how string) (none, error) {
	base := guest.Coded("X_HOW", guest.WithFix(errors.New("failed "+how), "do otherwise"))
	switch how {
	case "terminal":
		return none{}, fmt.Errorf("wrapped: %w", guest.Terminal(base))
	case "retry-after":
		return none{}, guest.RetryAfter(base, 90*time.Second)
	case "rate-limited":
		return none{}, guest.RateLimited(base, time.Minute)
	}
	return none{}, base
}
