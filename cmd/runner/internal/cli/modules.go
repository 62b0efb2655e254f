package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/host"
	"github.com/jobrunner/runner/host/module"
)

func newModules(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "modules",
		Short: "Look into handler modules",
		Long: `A handler module is one .wasm file. What it may touch is not in the file but in
jobs.toml.`,
		Example: `  runner modules inspect bin/onboard.wasm`,
		GroupID: groupTools,
	}
	return e.group(cmd, newModulesInspect(e))
}

// inspectView is a module as JSON.
type inspectView struct {
	File     string        `json:"file"`
	SHA256   string        `json:"sha256"`
	Bytes    int64         `json:"bytes"`
	ABI      int           `json:"abi,omitempty"`
	SDK      string        `json:"sdk,omitempty"`
	Handlers []abi.Handler `json:"handlers"`
	Reset    string        `json:"reset"` // "image", or why every attempt needs a new instance
	Memory   memoryView    `json:"memory"`
	Imports  []symbolView  `json:"imports"`
	Exports  []symbolView  `json:"exports"`
	Problems []refusal     `json:"problems"`
}

type memoryView struct {
	MinBytes uint64 `json:"min_bytes"`
	MaxBytes uint64 `json:"max_bytes"`
}

type symbolView struct {
	Module string `json:"module,omitempty"`
	Name   string `json:"name"`
	Type   string `json:"type,omitempty"`
}

// pageBytes is the size of a page of linear memory.
const pageBytes = 64 << 10

func newModulesInspect(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Say what a module is, and whether it can be run",
		Long: `Say what a .wasm file is: its digest (what sha256 in jobs.toml pins), the contract it was
built for, its handlers, memory, imports and exports, and everything that would keep
it from being run. A module without problems is loaded and asked for its handlers, with
nothing granted to it. The exit code is 1 if it has a problem.`,
		Example: `  runner modules inspect bin/onboard.wasm
  runner modules inspect bin/onboard.wasm --json`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"wasm"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	e.jsonFlag(cmd)
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, args []string) error {
		wasm, err := host.ReadModule(args[0])
		if err != nil {
			return err
		}
		v := e.inspect(ctx, args[0], wasm)
		if e.json {
			err = printJSON(e.Stdout, v)
		} else {
			e.printInspected(v)
		}
		if err == nil && len(v.Problems) > 0 {
			return &exit{code: exitProblem}
		}
		return err
	})
	return cmd
}

func (e *env) inspect(ctx context.Context, file string, wasm []byte) inspectView {
	in := module.Inspect(wasm)
	v := inspectView{
		File: file, SHA256: in.Digest, Bytes: in.Size, Reset: in.Reset(), Handlers: []abi.Handler{},
		Imports: []symbolView{}, Exports: []symbolView{}, Problems: []refusal{},
	}
	for _, p := range in.Problems {
		v.Problems = append(v.Problems, refusalOf(p))
	}
	if r := in.Report; r != nil {
		v.Memory = memoryView{MinBytes: uint64(r.MemoryMin) * pageBytes, MaxBytes: uint64(r.MemoryMax) * pageBytes}
		for _, i := range r.Imports {
			v.Imports = append(v.Imports, symbolView{Module: i.Module, Name: i.Name, Type: i.Type})
		}
		for _, x := range r.Exports {
			v.Exports = append(v.Exports, symbolView{Name: x.Name, Type: x.Type})
		}
	}
	if len(v.Problems) > 0 {
		return v
	}
	d, err := describe(ctx, wasm)
	if err != nil {
		for _, one := range flatten(err) {
			v.Problems = append(v.Problems, refusalOf(one))
		}
		return v
	}
	v.ABI, v.SDK, v.Handlers = d.ABI, d.SDK, d.Handlers
	return v
}

// describe loads a module without any grant and asks it what it is.
func describe(ctx context.Context, wasm []byte) (abi.Description, error) {
	h, err := app.NewHost(ctx, app.HostParams{})
	if err != nil {
		return abi.Description{}, err
	}
	defer func() { _ = h.Close(context.WithoutCancel(ctx)) }()
	g, err := h.Load(ctx, manifest.Module{}, wasm)
	if err != nil {
		return abi.Description{}, err
	}
	defer h.CloseGuest(g)
	return g.Describe(), nil
}

func (e *env) printInspected(v inspectView) {
	w := e.Stdout
	field := func(name, value string) {
		_, _ = fmt.Fprintf(w, "%s %s\n", e.out.dim(fmt.Sprintf("%-9s", name)), cell(value))
	}
	field("file", v.File)
	field("sha256", v.SHA256)
	field("size", size(int(v.Bytes)))
	if v.ABI > 0 {
		field("abi", fmt.Sprintf("%d, built with %s", v.ABI, v.SDK))
	}
	var names []string
	for _, h := range v.Handlers {
		name := h.Name
		if len(h.Schema) > 0 {
			name += " (with a schema)"
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		field("handlers", strings.Join(names, ", "))
	}
	if v.Memory.MinBytes > 0 {
		field("memory", fmt.Sprintf("%s at the start, at most %s", size(int(v.Memory.MinBytes)), size(int(v.Memory.MaxBytes))))
	}
	field("reset", v.Reset)
	if len(v.Imports)+len(v.Exports) > 0 {
		_, _ = fmt.Fprintln(w)
		t := table{head: []string{"", "NAME", "TYPE"}}
		for _, i := range v.Imports {
			t.row("import", i.Module+"."+i.Name, i.Type)
		}
		for _, x := range v.Exports {
			t.row("export", x.Name, x.Type)
		}
		t.print(w, e.out, nil)
	}
	for _, p := range v.Problems {
		_, _ = fmt.Fprintf(w, "\n%s%s\n", e.out.red(p.Code+": "), p.Message)
		if p.Fix != "" {
			_, _ = fmt.Fprintf(w, "  to do: %s\n", p.Fix)
		}
	}
}
