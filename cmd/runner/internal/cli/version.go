package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
)

// versionView is what `version --json` prints.
type versionView struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	ABI      int    `json:"abi"`
	Wazero   string `json:"wazero"`
	SQLite   string `json:"sqlite,omitempty"`
}

func versionOf() versionView {
	v := versionView{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, ABI: abi.Version, Wazero: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		switch d.Path {
		case "github.com/tetratelabs/wazero":
			v.Wazero = d.Version
		case "modernc.org/sqlite", "zombiezen.com/go/sqlite", "github.com/ncruces/go-sqlite3":
			v.SQLite = d.Path + " " + d.Version
		}
	}
	return v
}

func newVersion(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print what this binary is made of",
		Long: `Print the version of the binary, the contract its modules are built against (ABI),
the WebAssembly runtime and the embedded database driver.`,
		Example: `  runner version
  runner version --json`,
		Args:    cobra.NoArgs,
		GroupID: groupTools,
	}
	e.jsonFlag(cmd)
	cmd.RunE = e.run(func(_ context.Context, _ *cobra.Command, _ []string) error { return e.version() })
	return cmd
}

func (e *env) version() error {
	v := versionOf()
	if e.json {
		return printJSON(e.Stdout, v)
	}
	revision := v.Revision
	if v.Modified {
		revision += " (modified)"
	}
	t := table{head: []string{"runner", v.Version}}
	for _, r := range [][2]string{{"revision", revision}, {"abi", fmt.Sprintf("%s (version %d)", abi.ImportModule, v.ABI)}, {"wazero", v.Wazero}, {"sqlite", v.SQLite}, {"go", fmt.Sprintf("%s %s/%s", v.Go, v.OS, v.Arch)}} {
		if r[1] != "" {
			t.row(r[0], r[1])
		}
	}
	t.print(e.Stdout, style{}, nil)
	return nil
}
