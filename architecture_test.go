// Package runner_test holds the rules that concern the repository as a whole.
// There is no package runner: the root holds nothing but this test.
package runner_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const ours = "github.com/jobrunner/runner/"

// floor is what every room of ours may import: the contract, and its bytes.
var floor = []string{"abi", "abi/wire"}

// room is one row of the table: packages, and what of ours their production
// code may import besides the floor. A pattern's last element may be * (one
// element) or ... (any number, none included).
type room struct {
	name string
	may  []string
	why  string
}

// rooms must name every package of ours. A package that matches several rows
// belongs to the first.
var rooms = []room{
	{"abi", nil, "abi is the contract: whoever reads it must need nothing else"},
	{"abi/wire", []string{"abi"}, "bytes are the same for every host and guest"},
	{"abi/wasmasm", []string{"abi"}, "a fixture that depends on what it tests proves nothing"},
	{"abi/abitest", []string{"abi/wasmasm"}, "other hosts and SDKs run the kit: it must not bring ours along"},
	{"abi/abitest/guest", []string{"abi/guest"}, "the conformance guest is a handler like any other"},
	{"abi/guest/guesttest", []string{"abi/guest/...", "abi/abitest"}, "it is what an author's own tests import"},
	{"abi/guest/...", []string{"abi/guest/..."}, "it is compiled into every handler, to Wasm and natively"},

	{"engine/job", nil, "the vocabulary is below everything that speaks it"},
	{"engine/manifest", []string{"engine/job", "engine/limit"}, "validate must work without a database and without running a guest"},
	{"engine/retry", []string{"engine/job"}, "the decision is a pure function of values"},
	{"engine/limit", []string{"engine/job"}, "limits are arithmetic over what a store has found"},
	{"engine/metrics", []string{"engine/job"}, "recording has no policy"},
	{"engine/trace", nil, "what the engine says of spans names no library that makes them"},
	{"engine/store", []string{"engine/job", "engine/limit", "engine/internal/runid"}, "what a database promises must not depend on who uses it"},
	{"engine/store/storetest", []string{"engine/store", "engine/job", "engine/limit"}, "the suite pins the promises and nothing above them"},
	{"engine/store/postgres/pgtest", nil, "it starts a server for tests and knows no schema"},
	{"engine/store/postgres/outbox", []string{"engine/store", "engine/job", "engine/internal/sqltext"}, "an application's database has an outbox without a queue, and its program links nothing of one"},
	{"engine/store/*", []string{"engine/store", "engine/job", "engine/limit", "engine/internal/hub", "engine/internal/loop", "engine/internal/runid", "engine/internal/sqltext"}, "a store holds statements, no policy: what it decided alone would differ between stores"},
	{"engine/queue", []string{"engine/store", "engine/job", "engine/manifest", "engine/retry", "engine/limit", "engine/metrics", "engine/trace", "engine/internal/loop"}, "the one enqueue path knows no attempt"},
	{"engine/step", []string{"engine/store", "engine/job", "engine/queue", "engine/manifest", "engine/retry", "engine/metrics", "engine/trace"}, "an attempt's memory does not know which worker runs it"},
	{"engine/deploy", []string{"engine/store", "engine/job", "engine/manifest", "engine/internal/loop"}, "which version runs is decided without running it"},
	{"engine/schedule", []string{"engine/store", "engine/job", "engine/manifest", "engine/queue", "engine/metrics", "engine/trace", "engine/internal/loop"}, "a schedule enqueues through the one path"},
	{"engine/outbox", []string{"engine/store", "engine/job", "engine/queue", "engine/metrics", "engine/trace", "engine/internal/loop"}, "the relay enqueues through the one path"},
	{"engine/worker", []string{"engine/queue", "engine/step", "engine/deploy", "engine/limit", "engine/retry", "engine/metrics", "engine/trace", "engine/store", "engine/manifest", "engine/job", "engine/internal/loop"}, "a worker runs any abi.Guest, on any store"},
	{"engine/internal/enginetest", []string{"engine/..."}, "factories for tests"},
	{"engine/sim", nil, "the simulator is tests: nothing of what runs may need it"},
	{"engine/internal/hub", []string{"engine/internal/loop"}, "the news of a commit is a signal"},
	{"engine/internal/*", nil, "service shape, signals, ids and statements are below every room that needs them"},
	{"engine", []string{
		"engine/job", "engine/manifest", "engine/retry", "engine/limit", "engine/metrics", "engine/trace", "engine/store", "engine/queue", "engine/step",
		"engine/deploy", "engine/schedule", "engine/outbox", "engine/worker", "engine/internal/loop",
	}, "the facade receives a store, so that a program that only enqueues links one driver"},

	{"host/module/wasmbin", nil, "it reads and writes binaries without a runtime"},
	{"host/module", []string{"host/module/wasmbin"}, "checking a module runs nothing of it"},
	{"host/instance", []string{"host/module"}, "an instance's memory and lifetime know no host function"},
	{"host/call", nil, "a host function moves values between guest memory and abi.Calls; what they mean is behind Calls"},
	{"host/capability", nil, "what a guest may touch outside is decided without knowing the guest's memory"},
	{"host/replay", nil, "it runs any program, to see it go the same way again"},
	{"host", []string{"host/..."}, "the facade of the Wasm side"},

	{"cmd/runner", []string{"cmd/runner/internal/cli"}, "main only exits"},
	{"cmd/runner/internal/app", []string{"engine", "engine/...", "host"}, "the composition root is the one place that sees both sides"},
	{"cmd/runner/internal/bench", []string{"cmd/runner/internal/app", "engine", "engine/job", "engine/manifest", "engine/store", "host", "abi/wasmasm"}, "a benchmark runs what serve runs"},
	{"cmd/runner/internal/bench/peers", nil, "it measures programs from outside, ours like the others"},
	{"cmd/runner/internal/chaostest", nil, "it troubles the binary that users run; what it needs of ours, its tests import"},
	{"cmd/runner/internal/cli", []string{"cmd/runner/internal/app", "cmd/runner/internal/bench", "engine", "engine/job", "engine/manifest", "engine/store", "host", "host/module"}, "a command parses and prints; what it does is in the rooms"},
	{"cmd/runner/internal/otlptest", nil, "it takes what programs send, ours like the others"},
	{"cmd/runner/internal/onpgtest", []string{"engine/store/postgres/pgtest"}, "it starts a server for another command"},

	{"plugins/...", []string{"abi/guest"}, "a handler is written against the SDK alone, like a user's"},
	{"examples/...", []string{"abi/guest", "abi/wasmasm"}, "an example must work in a user's own repository"},
	{".", nil, "the root holds no code"},
}

// never are imports, ours or foreign, that only some rooms may have, in tests
// too where it says so.
var never = []struct {
	imports string
	only    []string
	tests   bool
	why     string
}{
	{ours + "cmd/...", []string{"cmd/..."}, true, "nothing builds on a command: what others need belongs into a room below"},
	{ours + "host/...", []string{"host/...", "host", "cmd/..."}, true, "engine and host meet in abi: the engine is tested without Wasm, and another host can take the place of ours"},
	{ours + "engine/...", []string{"engine/...", "engine", "cmd/..."}, true, "engine and host meet in abi: the host is tested without a database"},
	{ours + "engine/store/sqlite", []string{"cmd/...", "engine/internal/enginetest"}, false, "a store is chosen in one place"},
	{ours + "engine/store/postgres", []string{"cmd/..."}, false, "a store is chosen in one place"},
	{ours + "engine/store/postgres/outbox", []string{"cmd/..."}, false, "where an outbox is, is said in one place"},
	{"github.com/tetratelabs/wazero/...", []string{"host/...", "host", "abi/abitest"}, false, "the runtime can be replaced in one folder"},
	{"github.com/tetratelabs/wazero/experimental/...", []string{"host/instance"}, false, "its API changes between minor versions: one room pays for that"},
	{"database/sql", []string{"engine/store/*"}, false, "SQL outside a store is a promise that no suite pins"},
	{"modernc.org/sqlite/...", []string{"engine/store/sqlite"}, false, "a driver's types end in its store"},
	{"zombiezen.com/go/sqlite/...", []string{"engine/store/sqlite"}, false, "a driver's types end in its store"},
	{"github.com/ncruces/go-sqlite3/...", []string{"engine/store/sqlite"}, false, "a driver's types end in its store"},
	{"github.com/jackc/pgx/...", []string{"engine/store/postgres", "engine/store/postgres/outbox", "engine/store/postgres/pgtest", "cmd/runner/internal/bench/peers"}, false, "a driver's types end in its store"},
	{"github.com/spf13/cobra", []string{"cmd/runner/internal/cli"}, false, "flags are for one room"},
	{"github.com/pelletier/go-toml/...", []string{"engine/manifest"}, false, "jobs.toml is read in one room"},
	{"go.opentelemetry.io/...", []string{"cmd/runner/internal/app", "cmd/runner/internal/otlptest"}, false, "the engine knows spans, and no library of them"},
	{"github.com/prometheus/...", []string{"engine/metrics", "engine", "cmd/..."}, false, "names and labels of metrics stand in one room"},
}

// topLevel is everything that may stand at the root.
var topLevel = []string{
	".ci", ".gitattributes", ".github", ".gitignore",
	"CHANGELOG.md", "LICENSE", "Makefile", "README.md", "architecture_test.go", "go.mod", "go.sum", "jobs.toml",
	"abi", "cmd", "docs", "engine", "examples", "host", "plugins",
}

type pkg struct {
	ImportPath   string
	Standard     bool
	DepOnly      bool
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

// packages lists our packages and all they depend on.
func packages(t *testing.T) map[string]*pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-buildvcs=false", "-e", "-deps",
		"-json=ImportPath,Standard,DepOnly,Imports,TestImports,XTestImports,Deps", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	all := map[string]*pkg{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = &p
	}
	return all
}

// local is a package's path below the module, false for a foreign one.
func local(importPath string) (string, bool) {
	if importPath == strings.TrimSuffix(ours, "/") {
		return ".", true
	}
	return strings.CutPrefix(importPath, ours)
}

// matches reports whether a path fits a pattern; see room.
func matches(pattern, p string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return p == prefix || strings.HasPrefix(p, prefix+"/")
	}
	ok, err := path.Match(pattern, p)
	return err == nil && ok
}

func matchesAny(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, p) })
}

func isTestRoom(p string) bool { return strings.HasSuffix(path.Base(p), "test") }

// eachOwn calls f for every package of ours, sorted.
func eachOwn(all map[string]*pkg, f func(name string, p *pkg)) {
	var names []string
	for importPath := range all {
		if name, ok := local(importPath); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		importPath := ours + name
		if name == "." {
			importPath = strings.TrimSuffix(ours, "/")
		}
		f(name, all[importPath])
	}
}

func TestEveryRoomImportsOnlyWhatItsRowNames(t *testing.T) {
	eachOwn(packages(t), func(name string, p *pkg) {
		i := slices.IndexFunc(rooms, func(r room) bool { return matches(r.name, name) })
		if i < 0 {
			t.Errorf("%s is no room of the table in architecture_test.go. A new room begins with its sentence in docs/architecture.md, then gets its row here.", name)
			return
		}
		r := rooms[i]
		for _, imported := range p.Imports {
			to, ok := local(imported)
			if !ok || matchesAny(r.may, to) || slices.Contains(floor, to) && name != "abi" && name != to {
				continue
			}
			if isTestRoom(to) && !isTestRoom(name) {
				continue // the test below says it better
			}
			t.Errorf("%s imports %s, which its row does not name.\n\tWhy: %s.\n\tIt may import: %s.", name, to, r.why, strings.Join(append(slices.Clone(floor), r.may...), ", "))
		}
	})
}

func TestForbiddenImports(t *testing.T) {
	eachOwn(packages(t), func(name string, p *pkg) {
		for _, rule := range never {
			if matchesAny(rule.only, name) {
				continue
			}
			imports := p.Imports
			if rule.tests {
				imports = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
			}
			for _, imported := range imports {
				if matches(rule.imports, imported) {
					t.Errorf("%s imports %s, which only %s may.\n\tWhy: %s.", name, imported, strings.Join(rule.only, ", "), rule.why)
				}
			}
		}
	})
}

func TestProductionImportsNoTestRoom(t *testing.T) {
	eachOwn(packages(t), func(name string, p *pkg) {
		for _, imported := range p.Imports {
			if to, ok := local(imported); ok && isTestRoom(to) && !isTestRoom(name) {
				t.Errorf("%s imports %s outside its tests: what exists for tests must not reach a user's binary", name, to)
			}
		}
	})
}

func TestABINeedsTheStandardLibraryOnly(t *testing.T) {
	all := packages(t)
	eachOwn(all, func(name string, p *pkg) {
		if !matches("abi/...", name) {
			return
		}
		for _, dep := range p.Deps {
			if d := all[dep]; d == nil || d.Standard {
				continue
			}
			if to, ok := local(dep); !ok || !matches("abi/...", to) {
				t.Errorf("%s depends on %s: the contract is compiled into every guest and vendored by other hosts, it brings nothing along", name, dep)
			}
		}
	})
}

func TestTopLevelIsFixed(t *testing.T) {
	var names []string
	if _, err := os.Stat(".git"); err == nil {
		// Only what is committed counts: a folder of an editor is nobody's business.
		// The checkout may be of another user, as in a container.
		out, err := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z").Output()
		if err != nil {
			t.Fatalf("git ls-files: %v", err)
		}
		for file := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			first, _, _ := strings.Cut(file, "/")
			names = append(names, first)
		}
	} else {
		entries, err := os.ReadDir(".")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "bin" && e.Name() != ".runner" {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !slices.Contains(topLevel, name) {
			t.Errorf("%s stands at the top level, which is fixed: a newcomer reads it as the table of contents. Put it into a room, docs or examples.", name)
		}
	}
}

func TestRulesAreReachable(t *testing.T) {
	for i, r := range rooms {
		if folders, err := filepath.Glob(strings.TrimSuffix(r.name, "/...")); err != nil || len(folders) == 0 {
			t.Errorf("the row of %s says what may be where nothing is", r.name)
		}
		if r.why == "" {
			t.Errorf("%s has no reason", r.name)
		}
		for _, earlier := range rooms[:i] {
			if matches(earlier.name, r.name) {
				t.Errorf("the row of %s is never reached: %s stands before it", r.name, earlier.name)
			}
		}
	}
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"engine/store/*", "engine/store/sqlite", true},
		{"engine/store/*", "engine/store", false},
		{"engine/store/*", "engine/store/sqlite/x", false},
		{"host/...", "host", true},
		{"host/...", "hostile", false},
		{"host", "host/call", false},
	} {
		if matches(c.pattern, c.path) != c.want {
			t.Errorf("pattern %s, path %s: want %v", c.pattern, c.path, c.want)
		}
	}
}
