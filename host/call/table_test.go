package call

import (
	"testing"

	"github.com/jobrunner/runner/abi"
)

func TestEveryImportHasABodyAndEveryBodyAnImport(t *testing.T) {
	for _, f := range abi.Imports {
		if table[f.Name] == nil {
			t.Errorf("no body for %s%s", f.Name, f.Signature())
		}
	}
	known := map[string]bool{}
	for _, f := range abi.Imports {
		known[f.Name] = true
	}
	for name := range table {
		if !known[name] {
			t.Errorf("a body for %s, which is not in abi.Imports", name)
		}
	}
}

// Preview 1 has 46 functions; a module that imports one that is missing could
// not be instantiated.
func TestAllOfWASIPreview1IsServed(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range wasiTable {
		if seen[f.name] {
			t.Errorf("%s is there twice", f.name)
		}
		seen[f.name] = true
	}
	// sock_accept came later and is counted too.
	if len(seen) != 46 {
		t.Errorf("%d functions, want 46", len(seen))
	}
}

func TestOnlyLogTimeAndRandomnessWhileTheModuleIsBroughtUp(t *testing.T) {
	allowed := map[string]bool{
		abi.FuncFeatures: true, abi.FuncLog: true, abi.FuncNow: true, abi.FuncRandom: true,
		abi.FuncResultLen: true, abi.FuncResultRead: true,
	}
	mod := instantiate(t)
	for _, f := range abi.Imports {
		s := BringUp(t.Context(), fakeCaps{})
		_, err := mod.ExportedFunction(f.Name).Call(s, make([]uint64, len(f.Params))...)
		if got := err == nil; got != allowed[f.Name] {
			t.Errorf("%s: allowed %v, want %v", f.Name, got, allowed[f.Name])
		}
		if !allowed[f.Name] && s.Check(Ended{Export: abi.ExportWarm, Err: err}) == nil {
			t.Errorf("%s: bringing up went well", f.Name)
		}
	}
}
