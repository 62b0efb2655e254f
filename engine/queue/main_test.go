package queue_test

import (
	"os"
	"testing"

	"github.com/jobrunner/runner/engine/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }
