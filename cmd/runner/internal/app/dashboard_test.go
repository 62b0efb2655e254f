package app

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobrunner/runner/engine/metrics"
)

// descriptions hears what would be registered.
type descriptions struct{ all []string }

func (d *descriptions) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc)
	go func() {
		c.Describe(ch)
		close(ch)
	}()
	for desc := range ch {
		d.all = append(d.all, desc.String())
	}
	return nil
}

func (d *descriptions) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		_ = d.Register(c)
	}
}

func (d *descriptions) Unregister(prometheus.Collector) bool { return false }

var (
	descName   = regexp.MustCompile(`fqName: "([^"]+)"`)
	descLabels = regexp.MustCompile(`variableLabels: \{([^}]*)\}`)
	metricName = regexp.MustCompile(`\b(?:runner|process)_[a-z0-9_]+\b`)
	usedLabels = regexp.MustCompile(`\bby \(([^)]*)\)|\{(\w+)[=!~]`)
	suffixes   = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// served is every metric that serve has, with its labels.
func served(t *testing.T) map[string][]string {
	t.Helper()
	d := &descriptions{}
	if _, err := metrics.New(d); err != nil {
		t.Fatal(err)
	}
	if _, err := metrics.NewOutbox(d); err != nil {
		t.Fatal(err)
	}
	if _, err := metrics.NewSchedules(d); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(registerProcess(d), registerHost(d, nil)); err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{}
	for _, text := range d.all {
		name := descName.FindStringSubmatch(text)[1]
		for _, l := range strings.Split(descLabels.FindStringSubmatch(text)[1], ",") {
			labels[name] = append(labels[name], strings.TrimSpace(l))
		}
	}
	return labels
}

func TestDashboardAsksForMetricsAndLabelsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "grafana-dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID          int
			Type, Title string
			Targets     []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Definition string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	known := served(t)
	shown := map[string]bool{}
	check := func(title, expr string, more ...string) {
		var labels []string
		for _, name := range metricName.FindAllString(expr, -1) {
			if _, ok := known[name]; !ok {
				name = suffixes.ReplaceAllString(name, "")
			}
			l, ok := known[name]
			if !ok {
				t.Errorf("%s: no metric is called %s", title, name)
			}
			labels, shown[name] = append(labels, l...), true
		}
		if len(labels) == 0 {
			t.Errorf("%s: %q asks for nothing of ours", title, expr)
		}
		labels = append(labels, "le", "instance", "")
		for _, m := range usedLabels.FindAllStringSubmatch(expr, -1) {
			for _, l := range strings.Split(m[1]+","+m[2], ",") {
				more = append(more, strings.TrimSpace(l))
			}
		}
		for _, l := range more {
			if !slices.Contains(labels, l) {
				t.Errorf("%s: %q uses the label %s, which these metrics do not have", title, expr, l)
			}
		}
	}
	ids := map[int]bool{}
	legend := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			var inLegend []string
			for _, m := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				inLegend = append(inLegend, m[1])
			}
			check(p.Title, target.Expr, inLegend...)
		}
	}
	for _, v := range dashboard.Templating.List {
		if v.Definition != "" {
			check("a variable", v.Definition)
		}
	}
	// What the engine counts is worth a look; what the host counts, in part.
	for name := range known {
		if strings.HasPrefix(name, "runner_") && !strings.HasPrefix(name, "runner_host_") && !strings.HasPrefix(name, "runner_outbox_") && !shown[name] {
			t.Errorf("%s is shown nowhere", name)
		}
	}
}

// docs/operating.md says what each metric is for, docs/schedules.md what those of
// schedules are.
func TestEveryMetricOfTheEngineIsDocumented(t *testing.T) {
	var text []byte
	for _, page := range []string{"operating.md", "schedules.md"} {
		b, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, b...)
	}
	known := served(t)
	for name := range known {
		if strings.HasPrefix(name, "runner_") && !strings.HasPrefix(name, "runner_host_") && !strings.HasPrefix(name, "runner_outbox_") && !strings.Contains(string(text), name) {
			t.Errorf("no page says what %s is for", name)
		}
	}
}
