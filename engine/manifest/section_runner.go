package manifest

import (
	"path/filepath"
	"strings"
	"time"
)

// Defaults of [runner] and of a queue.
const (
	DefaultDatabase = "sqlite:runner.db"
	DefaultDataDir  = ".runner"
	DefaultLease    = 30 * time.Second
	DefaultDrain    = 25 * time.Second
	DefaultQueue    = "default"
	DefaultWorkers  = 100
	DefaultAgeAfter = 10 * time.Minute
)

// MinDrain and MaxDrain bound [runner] drain, and whatever overrides it.
const (
	MinDrain = time.Second
	MaxDrain = time.Hour
)

// runner reads [runner]. It is optional, and so is every key of it.
func (l *loader) runner(top *table) {
	t := top.table("runner", "{ }")
	if t == nil {
		t = &table{c: l.checker, n: newTable(0), path: "runner"}
	}
	r := &l.m.Runner
	r.Database = l.database(t)
	r.DataDir = DefaultDataDir
	if dir, ok := t.text("data_dir", DefaultDataDir); ok {
		if dir == "" || strings.ContainsRune(dir, 0) {
			t.bad("data_dir", CodeValue, "is not the name of a folder", "leave it out for "+DefaultDataDir)
		} else {
			r.DataDir = dir
		}
	}
	if !filepath.IsAbs(r.DataDir) {
		r.DataDir = filepath.Join(l.dir, r.DataDir)
	}
	// Below a few seconds a slow disk or a long pause of the process looks like
	// a dead worker, and its runs start a second time.
	r.Lease = t.duration("lease", DefaultLease, 2*time.Second, time.Hour)
	r.Drain = t.duration("drain", DefaultDrain, MinDrain, MaxDrain)
	r.CPUSlots = t.count("cpu_slots", 0, 1, 1024, "one for each CPU")
	r.Workers = t.count("workers", 0, 1, 100_000, "no limit")
	t.close()
}

// database checks which store it names. No message repeats it: a URL carries a
// password.
func (l *loader) database(t *table) string {
	name, ok := t.text("database", DefaultDatabase)
	if !ok {
		name = DefaultDatabase
	}
	const fix = `write "sqlite:FILE" or "postgres://USER@HOST/NAME"`
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.bad("database", CodeValue, "holds a control character", fix)
		return ""
	}
	file, ok := strings.CutPrefix(name, "sqlite:")
	file = strings.TrimPrefix(file, "//") // as a URL
	switch {
	case strings.HasPrefix(name, "postgres://"), strings.HasPrefix(name, "postgresql://"):
		return name
	case !ok:
		t.bad("database", CodeValue, "names no known database", fix)
	case file == "", strings.HasSuffix(file, "/"):
		t.bad("database", CodeValue, "names no file", fix)
	case strings.ContainsAny(file, "?#"):
		t.bad("database", CodeValue, "has parameters; a SQLite database takes none", fix)
	case file == ":memory:":
		t.bad("database", CodeValue, "is in memory, where no run survives the process", fix)
	case filepath.IsAbs(file):
		return "sqlite:" + file
	default:
		return "sqlite:" + filepath.Join(l.dir, file)
	}
	return ""
}

// queue reads [queues.NAME].
func (l *loader) queue(name string, t *table) {
	q := Queue{Name: name}
	q.Workers = t.count("workers", DefaultWorkers, 1, 10_000, "100")
	q.PerTenant = t.count("per_tenant", 0, 1, 1_000_000, "no limit")
	q.TenantWorkers = t.count("tenant_workers", 0, 1, 10_000, "no limit")
	q.Rate = rate(t, `{ limit = 50, per = "1s", by = "tenant" }`, true)
	q.AgeAfter = t.duration("age_after", DefaultAgeAfter, time.Second, longest)
	l.m.Queues[name] = q
	t.close()
}

// rate reads a table's rate; nil is none.
func rate(t *table, example string, by bool) *Rate {
	r := t.table("rate", example)
	if r == nil {
		return nil
	}
	out := &Rate{
		Limit: r.count("limit", 1, 1, 1_000_000, ""),
		Per:   r.duration("per", time.Second, 10*time.Millisecond, 31*day),
	}
	if by {
		out.By = r.choice("by", "queue", "queue", "tenant")
	}
	if r.n.children["limit"] == nil {
		t.c.add(r.n.at, CodeRequired, r.name("limit"), r.path+" has no limit", "write rate = "+example)
	}
	r.close()
	return out
}
