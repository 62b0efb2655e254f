package wasmasm

import "math"

// appendU appends v as unsigned LEB128.
func appendU(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// appendS appends v as signed LEB128.
func appendS(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// appendName appends s with its length.
func appendName(b []byte, s string) []byte {
	return append(appendU(b, uint64(len(s))), s...)
}

// appendF32 and appendF64 append a float as its little-endian bits.
func appendF32(b []byte, v float32) []byte {
	u := math.Float32bits(v)
	return append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
}

func appendF64(b []byte, v float64) []byte {
	u := math.Float64bits(v)
	for range 8 {
		b = append(b, byte(u))
		u >>= 8
	}
	return b
}
