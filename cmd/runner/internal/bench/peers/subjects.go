package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// What is measured. A latency is better when it is low, all else when it is high.
const (
	insert     = "insert"      // runs inserted a second
	work       = "work"        // runs a second whose handler does nothing
	steps      = "steps"       // durable steps a second
	latencyP50 = "latency_p50" // ms from enqueue to the handler's start
	latencyP99 = "latency_p99"
)

// subject is one thing to be measured.
type subject struct {
	name    string
	prepare func(ctx context.Context) error // builds it; may be nil
	// measure answers what it has of the measures, on an empty database.
	measure func(ctx context.Context, database string) (map[string]float64, error)
}

// subjects are the runner with two guests and the peers in p.peers.
func subjects(p params) []subject {
	all := []subject{ours("runner", p, "noop"), ours("runner-go", p, "go")}
	if p.peers == "" {
		return all
	}
	jobs := strconv.Itoa(p.jobs)
	return append(all,
		peer(p, "river", buildGo, func(dir, url string) []string { return []string{filepath.Join(dir, "peer"), "-url", url, "-n", jobs} }),
		peer(p, "graphile", installNode, func(dir, url string) []string { return []string{"node", "bench.mjs", url, jobs} }),
		peer(p, "dbos", buildGo, func(dir, url string) []string {
			return []string{filepath.Join(dir, "peer"), "-url", url, "-n", "2000", "-steps", "5", "-c", "50"}
		}))
}

// ours is the runner's own benchmark with a guest.
func ours(name string, p params, guest string) subject {
	return subject{name: name, measure: func(ctx context.Context, database string) (map[string]float64, error) {
		out, err := run(exec.CommandContext(ctx, p.runner, "bench", "--json", "--guest", guest, "--jobs", strconv.Itoa(p.jobs), "--database-url", database))
		if err != nil {
			return nil, err
		}
		var r struct {
			Insert  float64 `json:"insert_per_s"`
			Work    float64 `json:"work_per_s"`
			Steps   float64 `json:"steps_per_s"`
			Latency struct {
				P50 float64 `json:"p50"`
				P99 float64 `json:"p99"`
			} `json:"latency_ms"`
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			return nil, err
		}
		return map[string]float64{insert: r.Insert, work: r.Work, steps: r.Steps, latencyP50: r.Latency.P50, latencyP99: r.Latency.P99}, nil
	}}
}

// peer is the program in a folder of p.peers.
func peer(p params, name string, build func(ctx context.Context, dir string) error, command func(dir, url string) []string) subject {
	dir := filepath.Join(p.dir, name)
	return subject{
		name: name,
		prepare: func(ctx context.Context) error {
			from := filepath.Join(p.peers, name)
			if _, err := os.Stat(from); err != nil {
				return err
			}
			if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
				return err
			}
			return build(ctx, dir)
		},
		measure: func(ctx context.Context, database string) (map[string]float64, error) {
			args := command(dir, database)
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Dir = dir
			out, err := run(cmd)
			if err != nil {
				return nil, err
			}
			return figures(out)
		},
	}
}

func buildGo(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", "peer", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	_, err := run(cmd)
	return err
}

func installNode(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	_, err := run(cmd)
	return err
}

// run answers what cmd prints; its error has the end of what it complains.
func run(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		said := strings.TrimSpace(stderr.String())
		if len(said) > 500 {
			said = "…" + said[len(said)-500:]
		}
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, said)
	}
	return string(out), nil
}

// What the peers print, and which measure each number is.
var printed = []struct {
	line     *regexp.Regexp
	measures []string
}{
	{regexp.MustCompile(`^\w+ insert\w* ([0-9.]+) jobs/s$`), []string{insert}},
	{regexp.MustCompile(`^\w+ work ([0-9.]+) jobs/s$`), []string{work}},
	{regexp.MustCompile(`^\w+ latency p50 ([0-9.]+) ms p99 ([0-9.]+) ms$`), []string{latencyP50, latencyP99}},
	{regexp.MustCompile(`^\w+ [0-9.]+ workflows/s ([0-9.]+) steps/s$`), []string{steps}},
}

// figures reads what a peer printed.
func figures(out string) (map[string]float64, error) {
	found := map[string]float64{}
	for line := range strings.Lines(out) {
		for _, p := range printed {
			m := p.line.FindStringSubmatch(strings.TrimSpace(line))
			for i, name := range p.measures {
				if m == nil {
					break
				}
				v, err := strconv.ParseFloat(m[i+1], 64)
				if err != nil {
					return nil, err
				}
				found[name] = v
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("it printed no figure: %q", out)
	}
	return found, nil
}
