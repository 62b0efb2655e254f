package call

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/jobrunner/runner/abi"
)

// WASI's error numbers that this shim answers.
const (
	wasiOK    = 0
	wasiBADF  = 8
	wasiINVAL = 28
	wasiNOSYS = 52
)

// wasiFunc is a function of WASI preview 1. params has a letter for each: i for
// i32, I for i64. All but proc_exit answer an error number.
type wasiFunc struct {
	name, params string
	do           body
}

// wasiTable is the whole of preview 1. What is served keeps nothing outside the
// State: there are no files, only stdout and stderr; wazero's own WASI has a
// table of descriptors that no reset would restore, and an exit that closes the
// instance.
var wasiTable = []wasiFunc{
	{"args_get", "ii", wasiNothing},
	{"args_sizes_get", "ii", wasiNoArgs},
	{"clock_res_get", "ii", wasiClockRes},
	{"clock_time_get", "iIi", wasiClockTime},
	{"environ_get", "ii", wasiEnviron},
	{"environ_sizes_get", "ii", wasiEnvironSizes},
	{"fd_fdstat_get", "ii", wasiFdstat},
	{"fd_write", "iiii", wasiWrite},
	{"poll_oneoff", "iiii", wasiPoll},
	{"proc_exit", "i", wasiExit},
	{"random_get", "ii", wasiRandom},
	{"sched_yield", "", wasiNothing},

	{"fd_advise", "iIIi", wasiBadFile},
	{"fd_allocate", "iII", wasiBadFile},
	{"fd_close", "i", wasiBadFile},
	{"fd_datasync", "i", wasiBadFile},
	{"fd_fdstat_set_flags", "ii", wasiBadFile},
	{"fd_fdstat_set_rights", "iII", wasiBadFile},
	{"fd_filestat_get", "ii", wasiBadFile},
	{"fd_filestat_set_size", "iI", wasiBadFile},
	{"fd_filestat_set_times", "iIIi", wasiBadFile},
	{"fd_pread", "iiiIi", wasiBadFile},
	{"fd_prestat_dir_name", "iii", wasiBadFile},
	{"fd_prestat_get", "ii", wasiBadFile},
	{"fd_pwrite", "iiiIi", wasiBadFile},
	{"fd_read", "iiii", wasiBadFile},
	{"fd_readdir", "iiiIi", wasiBadFile},
	{"fd_renumber", "ii", wasiBadFile},
	{"fd_seek", "iIii", wasiBadFile},
	{"fd_sync", "i", wasiBadFile},
	{"fd_tell", "ii", wasiBadFile},

	{"path_create_directory", "iii", wasiUnsupported},
	{"path_filestat_get", "iiiii", wasiUnsupported},
	{"path_filestat_set_times", "iiiiIIi", wasiUnsupported},
	{"path_link", "iiiiiii", wasiUnsupported},
	{"path_open", "iiiiiIIii", wasiUnsupported},
	{"path_readlink", "iiiiii", wasiUnsupported},
	{"path_remove_directory", "iii", wasiUnsupported},
	{"path_rename", "iiiiii", wasiUnsupported},
	{"path_symlink", "iiiii", wasiUnsupported},
	{"path_unlink_file", "iii", wasiUnsupported},
	{"proc_raise", "i", wasiUnsupported},
	{"sock_accept", "iii", wasiUnsupported},
	{"sock_recv", "iiiiii", wasiUnsupported},
	{"sock_send", "iiiii", wasiUnsupported},
	{"sock_shutdown", "ii", wasiUnsupported},
}

func wasiNothing(_ *State, _ api.Memory, stack []uint64)     { stack[0] = wasiOK }
func wasiBadFile(_ *State, _ api.Memory, stack []uint64)     { stack[0] = wasiBADF }
func wasiUnsupported(_ *State, _ api.Memory, stack []uint64) { stack[0] = wasiNOSYS }

func registerWASI(ctx context.Context, rt wazero.Runtime) error {
	b := rt.NewHostModuleBuilder(abi.WASIModule)
	for _, f := range wasiTable {
		params := make([]api.ValueType, len(f.params))
		for i, c := range f.params {
			params[i] = api.ValueTypeI32
			if c == 'I' {
				params[i] = api.ValueTypeI64
			}
		}
		results := []api.ValueType{api.ValueTypeI32}
		if f.name == "proc_exit" {
			results = nil
		}
		export(b, f.name, params, results, f.do)
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("call: serve %s: %w", abi.WASIModule, err)
	}
	return nil
}
