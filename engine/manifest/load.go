package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// maxBytes bounds the file: a thousand jobs with every key fit many times.
const maxBytes = 1 << 20

// Load reads and checks the manifest at path. The report is nil exactly when
// the manifest is not.
//
// It reads the schemas that jobs name, from the manifest's folder and below
// only. It does not read modules: whether each is there, matches its pin and
// fits its declaration is for who loads them.
func Load(path string) (*Manifest, *Report) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, fileReport(path, fileProblem(err))
	}
	defer root.Close()
	// Not through root: the manifest itself may be a link from anywhere.
	data, err := readRegular(os.Stat, os.Open, path, maxBytes)
	if err != nil {
		return nil, fileReport(path, err)
	}
	return parse(path, data, root)
}

// Parse checks a manifest that is not in a file, as if it stood at path.
// Schemas are read from path's folder, if that exists.
func Parse(path string, data []byte) (*Manifest, *Report) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err == nil {
		defer root.Close()
	}
	return parse(path, data, root)
}

func fileReport(path string, err error) *Report {
	fix := "name it with -f, or run this where jobs.toml is"
	switch {
	case errors.Is(err, errTooBig):
		fix = tooBigFix
	case errors.Is(err, errForbidden):
		fix = "give this user the right to read it"
	}
	return &Report{File: path, Problems: []Problem{{
		File: path, Code: CodeFile, Message: "the manifest " + err.Error(), Fix: fix,
	}}}
}

const tooBigFix = "name the manifest with -f, if this is another file; otherwise give some of its jobs to processes with a manifest of their own"

// parse does all the work; root is nil when there is no folder to read from.
func parse(path string, data []byte, root *os.Root) (*Manifest, *Report) {
	c := &checker{file: path, places: newPlaces(data)}
	m := c.manifest(path, data, root)
	if len(c.problems) > 0 {
		sortProblems(c.problems)
		return nil, &Report{File: path, Problems: c.problems, More: c.more}
	}
	return m, nil
}

func (c *checker) manifest(path string, data []byte, root *os.Root) *Manifest {
	dir, err := filepath.Abs(filepath.Dir(path))
	switch {
	case err != nil:
		c.add(0, CodeFile, "", "the manifest's folder "+fileProblem(err).Error(), "")
		return nil
	case len(data) > maxBytes:
		c.add(0, CodeFile, "", "the manifest is bigger than "+FormatSize(maxBytes), tooBigFix)
		return nil
	case bytes.HasPrefix(data, []byte("\uFEFF")):
		c.add(0, CodeFile, "", "the manifest starts with a byte order mark", "save it as UTF-8 without one")
		return nil
	case !utf8.Valid(data):
		at := 0
		for at < len(data) {
			r, size := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			at += size
		}
		c.add(at, CodeFile, "", "the manifest is not UTF-8: this is the byte "+fmt.Sprintf("0x%02x", data[at]), "save it as UTF-8")
		return nil
	}
	tree := c.tree(data)
	if tree == nil {
		return nil
	}
	sum := sha256.Sum256(data)
	m := &Manifest{
		Path:      path,
		Digest:    hex.EncodeToString(sum[:]),
		Files:     []string{path},
		Queues:    map[string]Queue{},
		Modules:   map[string]Module{},
		Jobs:      map[string]*Job{},
		Schedules: map[string]*Schedule{},
		tree:      tree,
		places:    c.places,
	}
	l := &loader{checker: c, m: m, dir: dir, root: root, named: map[string]map[string]bool{}, schemas: map[string]*Schema{}}
	top := &table{c: c, n: tree}
	l.runner(top)
	top.tables("queues", l.section("queues", l.queue))
	top.tables("modules", l.section("modules", l.module))
	top.tables("jobs", l.section("jobs", l.job))
	top.tables("schedules", l.section("schedules", l.schedule))
	top.close()
	l.references()
	slices.Sort(m.Files[1:])
	m.Files = slices.Compact(m.Files)
	return m
}

// loader is a checker with what it has made so far.
type loader struct {
	*checker
	m    *Manifest
	dir  string // absolute
	root *os.Root

	// named are the names that each section declares, problems or not: a job
	// with a problem is still declared, and to say otherwise would only hide
	// its own problem among others.
	named map[string]map[string]bool
	later []func() // checks that need every section

	schemas map[string]*Schema // by path; nil for one with a problem
}

func (l *loader) section(name string, each func(string, *table)) func(string, *table) {
	l.named[name] = map[string]bool{}
	return func(key string, t *table) {
		if key != noName {
			l.named[name][key] = true
		}
		each(key, t)
	}
}

// references runs the checks that look from one section into another.
func (l *loader) references() {
	for _, f := range l.later {
		f()
	}
}

// declared reports a name that section does not declare.
func (l *loader) declared(t *table, key, section, name string) bool {
	if l.named[section][name] {
		return true
	}
	one := strings.TrimSuffix(section, "s")
	fix := l.suggest(name, maps.Keys(l.named[section]))
	if fix == "" {
		fix = "declare it: [" + join(section, clip(name)) + "]"
	}
	t.bad(key, CodeReference, "names the "+one+" "+quote(name)+", which nothing declares", fix)
	return false
}

// Job is the job of that name. Error: X_JOB_UNKNOWN, with the closest name.
func (m *Manifest) Job(name string) (*Job, error) {
	if j := m.Jobs[name]; j != nil {
		return j, nil
	}
	fix := didYouMean(name, maps.Keys(m.Jobs))
	if fix == "" {
		fix = "declare [" + join("jobs", clip(name)) + "]"
	}
	return nil, &abi.Error{Code: job.CodeUnknownJob, Message: "no job is called " + quote(name), Fix: fix}
}
