package call

import "github.com/tetratelabs/wazero/api"

// WASI's error numbers that this shim answers.
const (
	wasiOK    = 0
	wasiBADF  = 8
	wasiINVAL = 28
	wasiNOSYS = 52
)

// wasiTable has the body of each function of abi.WASIImports. What is served
// keeps nothing outside the State: there are no files, only stdout and stderr;
// wazero's own WASI has a table of descriptors that no reset would restore, and
// an exit that closes the instance.
var wasiTable = map[string]body{
	"args_get":          wasiNothing,
	"args_sizes_get":    wasiNoArgs,
	"clock_res_get":     wasiClockRes,
	"clock_time_get":    wasiClockTime,
	"environ_get":       wasiEnviron,
	"environ_sizes_get": wasiEnvironSizes,
	"fd_fdstat_get":     wasiFdstat,
	"fd_write":          wasiWrite,
	"poll_oneoff":       wasiPoll,
	"proc_exit":         wasiExit,
	"random_get":        wasiRandom,
	"sched_yield":       wasiNothing,

	"fd_advise":             wasiBadFile,
	"fd_allocate":           wasiBadFile,
	"fd_close":              wasiBadFile,
	"fd_datasync":           wasiBadFile,
	"fd_fdstat_set_flags":   wasiBadFile,
	"fd_fdstat_set_rights":  wasiBadFile,
	"fd_filestat_get":       wasiBadFile,
	"fd_filestat_set_size":  wasiBadFile,
	"fd_filestat_set_times": wasiBadFile,
	"fd_pread":              wasiBadFile,
	"fd_prestat_dir_name":   wasiBadFile,
	"fd_prestat_get":        wasiBadFile,
	"fd_pwrite":             wasiBadFile,
	"fd_read":               wasiBadFile,
	"fd_readdir":            wasiBadFile,
	"fd_renumber":           wasiBadFile,
	"fd_seek":               wasiBadFile,
	"fd_sync":               wasiBadFile,
	"fd_tell":               wasiBadFile,

	"path_create_directory":   wasiUnsupported,
	"path_filestat_get":       wasiUnsupported,
	"path_filestat_set_times": wasiUnsupported,
	"path_link":               wasiUnsupported,
	"path_open":               wasiUnsupported,
	"path_readlink":           wasiUnsupported,
	"path_remove_directory":   wasiUnsupported,
	"path_rename":             wasiUnsupported,
	"path_symlink":            wasiUnsupported,
	"path_unlink_file":        wasiUnsupported,
	"proc_raise":              wasiUnsupported,
	"sock_accept":             wasiUnsupported,
	"sock_recv":               wasiUnsupported,
	"sock_send":               wasiUnsupported,
	"sock_shutdown":           wasiUnsupported,
}

func wasiNothing(_ *State, _ api.Memory, stack []uint64)     { stack[0] = wasiOK }
func wasiBadFile(_ *State, _ api.Memory, stack []uint64)     { stack[0] = wasiBADF }
func wasiUnsupported(_ *State, _ api.Memory, stack []uint64) { stack[0] = wasiNOSYS }
