package module

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/host/module/wasmbin"
)

// served are the functions that a host provides, by module and name.
var served = map[string]map[string]abi.Func{
	abi.ImportModule: byName(abi.Imports),
	abi.WASIModule:   byName(abi.WASIImports),
	abi.EnvModule:    byName(abi.EnvImports),
}

func byName(fs []abi.Func) map[string]abi.Func {
	m := make(map[string]abi.Func, len(fs))
	for _, f := range fs {
		m[f.Name] = f
	}
	return m
}

// strangers are modules that other hosts provide, with what to build instead.
// A key that ends in "*" is a prefix.
var strangers = []struct{ module, what, fix string }{
	{"wasi_unstable", "an early version of WASI", "build with a current toolchain, for target wasip1"},
	{"wasi:*", "WASI preview 2, which is for components", "build for target wasip1 (wasm32-wasip1)"},
	{"gojs", "Go for a browser (GOOS=js)", "build with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared"},
	{"go", "Go for a browser (GOOS=js)", "build with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared"},
	{"wbg", "wasm-bindgen, which is for JavaScript hosts", "build without wasm-bindgen, for target wasm32-wasip1"},
	{"__wbindgen_*", "wasm-bindgen, which is for JavaScript hosts", "build without wasm-bindgen, for target wasm32-wasip1"},
	{"extism:*", "another host (Extism)", "build with one of this runner's SDKs"},
	{"GOT.*", "dynamic linking", "link statically"},
	{MeterModule, "the host itself", "build the module without it"},
}

// checkImports finds the imports that no host provides, or not with that type.
func checkImports(imports []wasmbin.Import) (ps Problems) {
	told := map[string]bool{} // modules that one problem speaks for
	for _, im := range imports {
		if im.Kind != wasmbin.KindFunc {
			continue // the scan rejects it, and says why
		}
		funcs, ok := served[im.Module]
		if !ok {
			if !told[im.Module] {
				told[im.Module] = true
				ps = append(ps, foreignModule(im))
			}
			continue
		}
		f, ok := funcs[im.Name]
		switch {
		case !ok:
			ps.add(CodeImport, unknownFix(im.Module), "imports the function %s.%s, which this host does not have", im.Module, show(im.Name))
		case f.Signature() != im.Type:
			ps.add(CodeImport, "build the module against the current contract", "imports %s.%s with type %s, expected %s", im.Module, im.Name, im.Type, f.Signature())
		}
	}
	return ps
}

func unknownFix(module string) string {
	switch module {
	case abi.ImportModule:
		return "update the runner, or build with the SDK of this runner's version"
	case abi.EnvModule:
		return "it is for another host, or a symbol that the linker did not find"
	}
	return "build with a toolchain for WASI preview 1"
}

// foreignModule says why nothing is provided under an import's module name.
func foreignModule(im wasmbin.Import) *abi.Error {
	if v, ok := strings.CutPrefix(im.Module, "runner_v"); ok {
		if n, err := strconv.ParseUint(v, 10, 16); err == nil {
			return &abi.Error{
				Code:    CodeABI,
				Message: fmt.Sprintf("is built for version %d of the contract (it imports %s.%s); this runner serves version %d", n, im.Module, show(im.Name), abi.Version),
				Fix:     "update the runner, or build with an SDK for version " + strconv.Itoa(abi.Version),
			}
		}
	}
	for _, s := range strangers {
		prefix, isPrefix := strings.CutSuffix(s.module, "*")
		if im.Module == s.module || isPrefix && strings.HasPrefix(im.Module, prefix) {
			return &abi.Error{Code: CodeImport, Message: fmt.Sprintf("imports from %s, which belongs to %s", show(im.Module), s.what), Fix: s.fix}
		}
	}
	return &abi.Error{
		Code:    CodeImport,
		Message: fmt.Sprintf("imports %s.%s; a host provides %s, %s and %s only", show(im.Module), show(im.Name), abi.ImportModule, abi.WASIModule, abi.EnvModule),
		Fix:     "build the module without it",
	}
}

// show makes a name from a module fit for a line of text: short, and printable.
func show(s string) string {
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:80], "") + "…"
	}
	return printable(s)
}

// printable is s, in quotes where it would not be read as it is.
func printable(s string) string {
	if q := strconv.Quote(s); s == "" || q[1:len(q)-1] != s {
		return q
	}
	return s
}
