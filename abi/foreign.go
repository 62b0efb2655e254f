package abi

// f64 crosses only in AssemblyScript's hooks.
const f64 ValType = 0x7c

// WASIImports are the functions of WASI preview 1, served under WASIModule and
// sorted by name. All are there, because toolchains import more than a handler
// calls; those that need files or sockets answer an error number.
var WASIImports = []Func{
	{"args_get", two, one, false},
	{"args_sizes_get", two, one, false},
	{"clock_res_get", two, one, false},
	{"clock_time_get", []ValType{I32, I64, I32}, one, false},
	{"environ_get", two, one, false},
	{"environ_sizes_get", two, one, false},
	{"fd_advise", []ValType{I32, I64, I64, I32}, one, false},
	{"fd_allocate", []ValType{I32, I64, I64}, one, false},
	{"fd_close", one, one, false},
	{"fd_datasync", one, one, false},
	{"fd_fdstat_get", two, one, false},
	{"fd_fdstat_set_flags", two, one, false},
	{"fd_fdstat_set_rights", []ValType{I32, I64, I64}, one, false},
	{"fd_filestat_get", two, one, false},
	{"fd_filestat_set_size", []ValType{I32, I64}, one, false},
	{"fd_filestat_set_times", []ValType{I32, I64, I64, I32}, one, false},
	{"fd_pread", []ValType{I32, I32, I32, I64, I32}, one, false},
	{"fd_prestat_dir_name", three, one, false},
	{"fd_prestat_get", two, one, false},
	{"fd_pwrite", []ValType{I32, I32, I32, I64, I32}, one, false},
	{"fd_read", []ValType{I32, I32, I32, I32}, one, false},
	{"fd_readdir", []ValType{I32, I32, I32, I64, I32}, one, false},
	{"fd_renumber", two, one, false},
	{"fd_seek", []ValType{I32, I64, I32, I32}, one, false},
	{"fd_sync", one, one, false},
	{"fd_tell", two, one, false},
	{"fd_write", []ValType{I32, I32, I32, I32}, one, false},
	{"path_create_directory", three, one, false},
	{"path_filestat_get", []ValType{I32, I32, I32, I32, I32}, one, false},
	{"path_filestat_set_times", []ValType{I32, I32, I32, I32, I64, I64, I32}, one, false},
	{"path_link", []ValType{I32, I32, I32, I32, I32, I32, I32}, one, false},
	{"path_open", []ValType{I32, I32, I32, I32, I32, I64, I64, I32, I32}, one, false},
	{"path_readlink", []ValType{I32, I32, I32, I32, I32, I32}, one, false},
	{"path_remove_directory", three, one, false},
	{"path_rename", []ValType{I32, I32, I32, I32, I32, I32}, one, false},
	{"path_symlink", []ValType{I32, I32, I32, I32, I32}, one, false},
	{"path_unlink_file", three, one, false},
	{"poll_oneoff", []ValType{I32, I32, I32, I32}, one, false},
	{"proc_exit", one, none, false},
	{"proc_raise", one, one, false},
	{"random_get", two, one, false},
	{"sched_yield", none, one, false},
	{"sock_accept", three, one, false},
	{"sock_recv", []ValType{I32, I32, I32, I32, I32, I32}, one, false},
	{"sock_send", []ValType{I32, I32, I32, I32, I32}, one, false},
	{"sock_shutdown", two, one, false},
}

// EnvImports are the runtime hooks of AssemblyScript, served under EnvModule
// and sorted by name.
var EnvImports = []Func{
	// abort(message, file, line, column): an exception that nothing caught.
	{"abort", []ValType{I32, I32, I32, I32}, none, false},
	// seed() -> what Math.random starts from.
	{"seed", none, []ValType{f64}, false},
	// trace(message, n, up to five numbers).
	{"trace", []ValType{I32, I32, f64, f64, f64, f64, f64}, none, false},
}
