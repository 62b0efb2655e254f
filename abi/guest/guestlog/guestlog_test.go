package guestlog_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/jobrunner/runner/abi/guest"
	"github.com/jobrunner/runner/abi/guest/guestlog"
	"github.com/jobrunner/runner/abi/guest/guesttest"
)

func TestRecordsBecomeLines(t *testing.T) {
	guest.Job("log", func(c *guest.Ctx, _ int) (int, error) {
		log := guestlog.New(c, slog.LevelInfo)
		log.Debug("not shown")
		log.Info("plain")
		log.Warn("with attributes", "n", 1, "s", "two words")
		log.With("a", 1).WithGroup("g").Error("grouped", "time", 2)
		log.Log(context.Background(), slog.LevelError+4, "worse")
		return 0, nil
	})
	r := guesttest.Run(t, "log", 1, guesttest.Options{})
	var got []string
	for _, l := range r.Logs {
		got = append(got, fmt.Sprint(int(l.Level), " ", l.Text))
	}
	want := []string{"1 plain", `2 with attributes n=1 s="two words"`, "3 grouped a=1 g.time=2", "3 worse"}
	if r.Err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %q, want %q", r.Err, got, want)
	}
}
