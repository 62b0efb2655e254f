package capability

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jobrunner/runner/abi"
)

func TestSecretsComeFromTheLookup(t *testing.T) {
	s := grant(t, Config{Secrets: func(_ context.Context, name string) (string, error) {
		switch name {
		case "KEY":
			return "value", nil
		case "BROKEN":
			return "", errors.New("vault sealed")
		}
		return "", nil
	}}, Grants{Secrets: []string{"KEY", "BROKEN", "EMPTY"}})
	if v, err := s.Secret(t.Context(), "KEY"); v != "value" || err != nil {
		t.Errorf("KEY: %q, %v", v, err)
	}
	for _, name := range []string{"BROKEN", "EMPTY"} {
		_, err := s.Secret(t.Context(), name)
		var r *abi.Refusal
		if !errors.As(err, &r) || r.Code != abi.CodeFailed || r.Failure.Code != CodeSecretMissing {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s.Features() != abi.FeatureSecret {
		t.Errorf("features %b", s.Features())
	}
}

func TestEnvironIsSortedAndChecked(t *testing.T) {
	s := grant(t, Config{}, Grants{Env: map[string]string{"B": "2", "A": "1=1"}})
	if got := s.Environ(); !slices.Equal(got, []string{"A=1=1", "B=2"}) {
		t.Errorf("environ %v", got)
	}
	for _, env := range []map[string]string{{"": "x"}, {"A=B": "x"}, {"A": "x\x00y"}} {
		if _, err := NewOutside(Config{}).Grant(Grants{Env: env}); abi.CodeOf(err) != CodeGrantInvalid {
			t.Errorf("%q: %v", env, err)
		}
	}
}

func TestEqualGrantsHaveTheSameKey(t *testing.T) {
	a := Grants{HTTP: []string{"x", "y"}, Secrets: []string{"s"}, Env: map[string]string{"A": "1", "B": "2"}}
	b := Grants{HTTP: []string{"y", "x", "y"}, Secrets: []string{"s"}, Env: map[string]string{"B": "2", "A": "1"}}
	if a.Key() != b.Key() {
		t.Errorf("%s and %s", a.Key(), b.Key())
	}
	for _, other := range []Grants{
		{}, {HTTP: []string{"x"}, Secrets: []string{"y", "s"}}, {HTTP: []string{"x", "y"}, Secrets: []string{"s"}},
		{HTTP: []string{"x", "y"}, Secrets: []string{"s"}, Env: map[string]string{"A": "1", "B": "3"}},
	} {
		if other.Key() == a.Key() {
			t.Errorf("%+v has the same key", other)
		}
	}
}
