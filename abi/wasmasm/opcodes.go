package wasmasm

// Op is an instruction without immediates, or a load or store for Code.Mem.
type Op uint16

// prefixed is the first Op that is a prefix byte and a number.
const prefixed Op = 0x100

const (
	// Control and parametric.
	Unreachable Op = 0x00
	Nop         Op = 0x01
	Return      Op = 0x0f
	Drop        Op = 0x1a
	Select      Op = 0x1b

	// Loads and stores, for Code.Mem.
	I32Load    Op = 0x28
	I64Load    Op = 0x29
	F32Load    Op = 0x2a
	F64Load    Op = 0x2b
	I32Load8S  Op = 0x2c
	I32Load8U  Op = 0x2d
	I32Load16S Op = 0x2e
	I32Load16U Op = 0x2f
	I64Load8S  Op = 0x30
	I64Load8U  Op = 0x31
	I64Load16S Op = 0x32
	I64Load16U Op = 0x33
	I64Load32S Op = 0x34
	I64Load32U Op = 0x35
	I32Store   Op = 0x36
	I64Store   Op = 0x37
	F32Store   Op = 0x38
	F64Store   Op = 0x39
	I32Store8  Op = 0x3a
	I32Store16 Op = 0x3b
	I64Store8  Op = 0x3c
	I64Store16 Op = 0x3d
	I64Store32 Op = 0x3e

	// Comparisons.
	I32Eqz Op = 0x45
	I32Eq  Op = 0x46
	I32Ne  Op = 0x47
	I32LtS Op = 0x48
	I32LtU Op = 0x49
	I32GtS Op = 0x4a
	I32GtU Op = 0x4b
	I32LeS Op = 0x4c
	I32LeU Op = 0x4d
	I32GeS Op = 0x4e
	I32GeU Op = 0x4f
	I64Eqz Op = 0x50
	I64Eq  Op = 0x51
	I64Ne  Op = 0x52
	I64LtS Op = 0x53
	I64LtU Op = 0x54
	I64GtS Op = 0x55
	I64GtU Op = 0x56
	I64LeS Op = 0x57
	I64LeU Op = 0x58
	I64GeS Op = 0x59
	I64GeU Op = 0x5a
	F32Eq  Op = 0x5b
	F32Ne  Op = 0x5c
	F32Lt  Op = 0x5d
	F32Gt  Op = 0x5e
	F32Le  Op = 0x5f
	F32Ge  Op = 0x60
	F64Eq  Op = 0x61
	F64Ne  Op = 0x62
	F64Lt  Op = 0x63
	F64Gt  Op = 0x64
	F64Le  Op = 0x65
	F64Ge  Op = 0x66

	// i32 arithmetic.
	I32Clz    Op = 0x67
	I32Ctz    Op = 0x68
	I32Popcnt Op = 0x69
	I32Add    Op = 0x6a
	I32Sub    Op = 0x6b
	I32Mul    Op = 0x6c
	I32DivS   Op = 0x6d
	I32DivU   Op = 0x6e
	I32RemS   Op = 0x6f
	I32RemU   Op = 0x70
	I32And    Op = 0x71
	I32Or     Op = 0x72
	I32Xor    Op = 0x73
	I32Shl    Op = 0x74
	I32ShrS   Op = 0x75
	I32ShrU   Op = 0x76
	I32Rotl   Op = 0x77
	I32Rotr   Op = 0x78

	// i64 arithmetic.
	I64Clz    Op = 0x79
	I64Ctz    Op = 0x7a
	I64Popcnt Op = 0x7b
	I64Add    Op = 0x7c
	I64Sub    Op = 0x7d
	I64Mul    Op = 0x7e
	I64DivS   Op = 0x7f
	I64DivU   Op = 0x80
	I64RemS   Op = 0x81
	I64RemU   Op = 0x82
	I64And    Op = 0x83
	I64Or     Op = 0x84
	I64Xor    Op = 0x85
	I64Shl    Op = 0x86
	I64ShrS   Op = 0x87
	I64ShrU   Op = 0x88
	I64Rotl   Op = 0x89
	I64Rotr   Op = 0x8a

	// f32 and f64 arithmetic.
	F32Abs      Op = 0x8b
	F32Neg      Op = 0x8c
	F32Ceil     Op = 0x8d
	F32Floor    Op = 0x8e
	F32Trunc    Op = 0x8f
	F32Nearest  Op = 0x90
	F32Sqrt     Op = 0x91
	F32Add      Op = 0x92
	F32Sub      Op = 0x93
	F32Mul      Op = 0x94
	F32Div      Op = 0x95
	F32Min      Op = 0x96
	F32Max      Op = 0x97
	F32Copysign Op = 0x98
	F64Abs      Op = 0x99
	F64Neg      Op = 0x9a
	F64Ceil     Op = 0x9b
	F64Floor    Op = 0x9c
	F64Trunc    Op = 0x9d
	F64Nearest  Op = 0x9e
	F64Sqrt     Op = 0x9f
	F64Add      Op = 0xa0
	F64Sub      Op = 0xa1
	F64Mul      Op = 0xa2
	F64Div      Op = 0xa3
	F64Min      Op = 0xa4
	F64Max      Op = 0xa5
	F64Copysign Op = 0xa6

	// Conversions.
	I32WrapI64        Op = 0xa7
	I32TruncF32S      Op = 0xa8
	I32TruncF32U      Op = 0xa9
	I32TruncF64S      Op = 0xaa
	I32TruncF64U      Op = 0xab
	I64ExtendI32S     Op = 0xac
	I64ExtendI32U     Op = 0xad
	I64TruncF32S      Op = 0xae
	I64TruncF32U      Op = 0xaf
	I64TruncF64S      Op = 0xb0
	I64TruncF64U      Op = 0xb1
	F32ConvertI32S    Op = 0xb2
	F32ConvertI32U    Op = 0xb3
	F32ConvertI64S    Op = 0xb4
	F32ConvertI64U    Op = 0xb5
	F32DemoteF64      Op = 0xb6
	F64ConvertI32S    Op = 0xb7
	F64ConvertI32U    Op = 0xb8
	F64ConvertI64S    Op = 0xb9
	F64ConvertI64U    Op = 0xba
	F64PromoteF32     Op = 0xbb
	I32ReinterpretF32 Op = 0xbc
	I64ReinterpretF64 Op = 0xbd
	F32ReinterpretI32 Op = 0xbe
	F64ReinterpretI64 Op = 0xbf
	I32Extend8S       Op = 0xc0
	I32Extend16S      Op = 0xc1
	I64Extend8S       Op = 0xc2
	I64Extend16S      Op = 0xc3
	I64Extend32S      Op = 0xc4

	// References.
	RefIsNull Op = 0xd1

	// Saturating conversions.
	I32TruncSatF32S Op = 0xfc00
	I32TruncSatF32U Op = 0xfc01
	I32TruncSatF64S Op = 0xfc02
	I32TruncSatF64U Op = 0xfc03
	I64TruncSatF32S Op = 0xfc04
	I64TruncSatF32U Op = 0xfc05
	I64TruncSatF64S Op = 0xfc06
	I64TruncSatF64U Op = 0xfc07
)
