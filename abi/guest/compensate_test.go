package guest_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/guest"
	"github.com/jobrunner/runner/abi/guest/guesttest"
)

// trip books a flight and a hotel and then fails; did has what was done and
// undone, in order.
func trip(did *[]string, pay, cancelHotel func() error) func(*guest.Ctx, none) (none, error) {
	book := func(c *guest.Ctx, what string, undo func() error) error {
		_, err := guest.Step(c, what, func() (string, error) {
			*did = append(*did, what)
			return "ref-" + what, nil
		}, guest.Compensate(func(ref string) error {
			*did = append(*did, "cancel "+ref)
			return undo()
		}))
		return err
	}
	return func(c *guest.Ctx, _ none) (none, error) {
		if err := book(c, "flight", func() error { return nil }); err != nil {
			return none{}, err
		}
		if err := guest.Do(c, "mail", func() error { return nil }); err != nil {
			return none{}, err
		}
		if err := book(c, "hotel", cancelHotel); err != nil {
			return none{}, err
		}
		if err := guest.Do(c, "pay", pay); err != nil {
			return none{}, err
		}
		*did = append(*did, "paid")
		return none{}, guest.Do(c, "thank", func() error { return nil })
	}
}

func ok() error { return nil }

// Completed steps are undone, the last first, once the run has failed for good,
// and it keeps the failure that it had. (SG2, SG3, SG4)
func TestARunThatFailsForGoodIsUndone(t *testing.T) {
	var did []string
	tries := 0
	r := job(t, none{}, guesttest.Options{MaxAttempts: 3, Compensates: true}, trip(&did, func() error {
		tries++
		return guest.Coded("X_CARD", errors.New("no money"))
	}, ok))
	if want := []string{"flight", "hotel", "cancel ref-hotel", "cancel ref-flight"}; !slices.Equal(did, want) || tries != 3 {
		t.Errorf("did %q, want %q; paid %d times", did, want, tries)
	}
	if !slices.Equal(r.Undone, []string{"hotel", "flight"}) || guest.CodeOf(r.Err) != "X_CARD" && abi.CodeOf(r.Err) != "X_CARD" {
		t.Errorf("undone %q, error %v", r.Undone, r.Err)
	}
}

func TestARunThatIsDoneUndoesNothing(t *testing.T) {
	var did []string
	r := job(t, none{}, guesttest.Options{Compensates: true}, trip(&did, ok, ok))
	if want := []string{"flight", "hotel", "paid"}; r.Err != nil || !slices.Equal(did[:3], want) || len(r.Undone) != 0 {
		t.Errorf("did %q, undone %q, error %v", did, r.Undone, r.Err)
	}
}

// A compensator that fails is tried again, and what was undone before it is not
// undone again. (SG7, SG12)
func TestACompensatorThatFailsIsTriedAgain(t *testing.T) {
	var did []string
	fails := 2
	r := job(t, none{}, guesttest.Options{MaxAttempts: 4, Compensates: true}, trip(&did,
		func() error { return guest.Terminal(errors.New("no money")) },
		func() error {
			if fails--; fails >= 0 {
				return errors.New("the hotel does not answer")
			}
			return nil
		}))
	want := []string{"flight", "hotel", "cancel ref-hotel", "cancel ref-hotel", "cancel ref-hotel", "cancel ref-flight"}
	if !slices.Equal(did, want) || !slices.Equal(r.Undone, []string{"hotel", "flight"}) {
		t.Errorf("did %q, want %q; undone %q", did, want, r.Undone)
	}
}

// A handler that recovers from everything does not go on forward.
func TestAHandlerThatIsUndoneCannotGoOn(t *testing.T) {
	var did []string
	first := true
	r := job(t, none{}, guesttest.Options{MaxAttempts: 1, Compensates: true}, func(c *guest.Ctx, _ none) (out string, err error) {
		defer func() { _ = recover() }()
		if err := guest.Do(c, "a", ok, guest.Undo(func() error { did = append(did, "undo a"); return nil })); err != nil {
			return "", err
		}
		if first {
			first = false
			return "", errors.New("a mistake")
		}
		func() {
			defer func() { _ = recover() }()
			_ = guest.Do(c, "b", func() error { did = append(did, "b"); return nil })
		}()
		_, _ = c.Enqueue("other", 1)
		return "fine", nil
	})
	if !slices.Equal(did, []string{"undo a"}) || len(r.Enqueued) != 0 || r.Err == nil {
		t.Errorf("did %q, enqueued %v, error %v", did, r.Enqueued, r.Err)
	}
}

func TestACompensatorInAJobThatDoesNotCompensateIsRefused(t *testing.T) {
	var did []string
	r := job(t, none{}, guesttest.Options{}, trip(&did, ok, ok))
	if abi.CodeOf(r.Err) != "X_JOB_COMPENSATION_UNDECLARED" || len(did) != 0 {
		t.Errorf("did %q, error %v", did, r.Err)
	}
}
