package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is everything that was measured.
type report struct {
	When     time.Time                       `json:"when"`
	Server   string                          `json:"server"`
	Jobs     int                             `json:"jobs"`
	Samples  map[string]map[string][]float64 `json:"samples"` // by subject and measure
	Medians  map[string]map[string]float64   `json:"medians"`
	Ratios   []ratio                         `json:"ratios"`
	Failures map[string]string               `json:"failures,omitempty"` // by subject

	order []string // of subjects
}

// ratio compares a median of ours with one of a peer.
type ratio struct {
	Name   string  `json:"name"`
	Peer   string  `json:"peer"`
	Ratio  float64 `json:"ratio"`
	Target float64 `json:"target"`
	Low    bool    `json:"low,omitempty"` // the target is a maximum
	Met    bool    `json:"met"`
}

// targets are what the project wants to be, against the best of some peers.
var targets = []struct {
	name, ours, measure string
	peers               []string
	target              float64
}{
	{"no-op jobs worked", "runner", work, []string{"river", "graphile"}, 2.0},
	{"the same with a Go guest", "runner-go", work, []string{"river"}, 0.5},
	{"bulk insert", "runner", insert, []string{"river"}, 1.3},
	{"enqueue to start, p50", "runner", latencyP50, []string{"river"}, 0.3},
	{"enqueue to start, p99", "runner", latencyP99, []string{"river"}, 0.3},
	{"durable steps", "runner", steps, []string{"dbos"}, 10},
}

func lowIsGood(measure string) bool { return strings.HasPrefix(measure, "latency") }

// finish computes medians and ratios from the samples.
func (r *report) finish() {
	r.Medians = map[string]map[string]float64{}
	for name, measures := range r.Samples {
		r.Medians[name] = map[string]float64{}
		for m, samples := range measures {
			r.Medians[name][m] = median(samples)
		}
	}
	r.Ratios = []ratio{}
	for _, t := range targets {
		mine, ok := r.Medians[t.ours][t.measure]
		if !ok {
			continue
		}
		best, peer := 0.0, ""
		low := lowIsGood(t.measure)
		for _, p := range t.peers {
			v, ok := r.Medians[p][t.measure]
			if ok && (peer == "" || low == (v < best)) {
				best, peer = v, p
			}
		}
		if peer == "" || best == 0 {
			continue
		}
		x := ratio{Name: t.name, Peer: peer, Ratio: math.Round(100*mine/best) / 100, Target: t.target, Low: low}
		x.Met = low == (x.Ratio < x.Target) || x.Ratio == x.Target
		r.Ratios = append(r.Ratios, x)
	}
}

func median(of []float64) float64 {
	s := slices.Sorted(slices.Values(of))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// print prints the medians with their spread, and the ratios.
func (r *report) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(t, "MEDIAN (LOWEST TO HIGHEST)\tINSERTED/S\tWORKED/S\tSTEPS/S\tP50 MS\tP99 MS\n")
	for _, name := range r.order {
		if why, failed := r.Failures[name]; failed {
			_, _ = fmt.Fprintf(t, "%s\tnot measured: %s\n", name, strings.ReplaceAll(why, "\n", " "))
			continue
		}
		_, _ = fmt.Fprintf(t, "%s", name)
		for _, m := range []string{insert, work, steps, latencyP50, latencyP99} {
			samples := r.Samples[name][m]
			if len(samples) == 0 {
				_, _ = fmt.Fprint(t, "\t")
				continue
			}
			format := "\t%.0f (%.0f to %.0f)"
			if lowIsGood(m) {
				format = "\t%.2f (%.2f to %.2f)"
			}
			_, _ = fmt.Fprintf(t, format, r.Medians[name][m], slices.Min(samples), slices.Max(samples))
		}
		_, _ = fmt.Fprintln(t)
	}
	if len(r.Ratios) > 0 {
		_, _ = fmt.Fprintf(t, "\nRATIO OF MEDIANS\tIS\tWANTED\tAGAINST\n")
	}
	for _, x := range r.Ratios {
		bound := "at least"
		if x.Low {
			bound = "at most"
		}
		missed := ""
		if !x.Met {
			missed = "  MISSED"
		}
		_, _ = fmt.Fprintf(t, "%s\t%.2f\t%s %.1f\t%s%s\n", x.Name, x.Ratio, bound, x.Target, x.Peer, missed)
	}
	return t.Flush()
}

// write keeps everything as JSON.
func (r *report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
