package call

import (
	"testing"

	"github.com/jobrunner/runner/abi"
)

func TestEveryImportHasABodyAndEveryBodyAnImport(t *testing.T) {
	for module, m := range map[string]struct {
		funcs  []abi.Func
		bodies map[string]body
	}{
		abi.ImportModule: {abi.Imports, table},
		abi.WASIModule:   {abi.WASIImports, wasiTable},
		abi.EnvModule:    {abi.EnvImports, envTable},
	} {
		known := map[string]bool{}
		for _, f := range m.funcs {
			known[f.Name] = true
			if m.bodies[f.Name] == nil {
				t.Errorf("no body for %s.%s%s", module, f.Name, f.Signature())
			}
		}
		for name := range m.bodies {
			if !known[name] {
				t.Errorf("a body for %s.%s, which the contract does not name", module, name)
			}
		}
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
