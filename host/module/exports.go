package module

import (
	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/host/module/wasmbin"
)

// checkExports finds what the contract asks for and the module does not have.
func checkExports(exports []wasmbin.Export) (ps Problems) {
	have := make(map[string]wasmbin.Export, len(exports))
	for _, x := range exports {
		have[x.Name] = x
	}
	fix := "build with one of the SDKs; they export it"
	if _, command := have["_start"]; command {
		fix = "the module is a command (it exports _start): build a library instead (Go: -buildmode=c-shared; clang: -mexec-model=reactor; Rust: crate-type cdylib)"
	}
	for _, f := range abi.Exports {
		x, ok := have[f.Name]
		switch {
		case !ok && f.Optional:
		case !ok:
			ps.add(CodeExport, fix, "does not export the function %s, expected %s", f.Name, f.Signature())
		case x.Kind != wasmbin.KindFunc:
			ps.add(CodeExport, "", "exports %s as a %s, expected a function %s", f.Name, x.Kind, f.Signature())
		case x.Type != f.Signature():
			ps.add(CodeExport, "", "exports %s with type %s, expected %s", f.Name, x.Type, f.Signature())
		}
	}
	switch x, ok := have[abi.ExportMemory]; {
	case !ok:
		ps.add(CodeExport, "the linker can export it (lld: --export-memory)", "does not export its memory as %q", abi.ExportMemory)
	case x.Kind != wasmbin.KindMemory:
		ps.add(CodeExport, "", "exports %s as a %s, expected a memory", abi.ExportMemory, x.Kind)
	}
	return ps
}
