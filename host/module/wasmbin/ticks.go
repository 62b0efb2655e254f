package wasmbin

// ticks writes the sequences that the meter planned.
type ticks struct {
	fuel uint32 // index of the fuel global
	tick uint32 // index of the imported function
	tmp  uint32 // a local for lengths; only where the function has ranges
}

// check is: if fuel < 0 { fuel = tick() }, with the new fuel on the stack top
// already stored.
func (t *ticks) check(b []byte) []byte {
	b = appendU32(append(b, 0x23), t.fuel)
	b = append(b, 0x41, 0, 0x48, 0x04, 0x40, 0x10)
	b = appendU32(b, t.tick)
	b = appendU32(append(b, 0x24), t.fuel)
	return append(b, 0x0b)
}

// plain is: fuel -= weight; check.
func (t *ticks) plain(b []byte, weight int32) []byte {
	b = appendU32(append(b, 0x23), t.fuel)
	b = append(appendI32(append(b, 0x41), weight), 0x6b, 0x24)
	b = appendU32(b, t.fuel)
	return t.check(b)
}

// loop is plain, right after a loop instruction.
func (t *ticks) loop(b []byte, weight int32, _ bool) []byte { return t.plain(b, weight) }

// charge is: fuel -= weight + length >> shift; check, with length on the stack
// top and left there.
func (t *ticks) charge(b []byte, weight int32, shift byte) []byte {
	b = appendU32(append(b, 0x22), t.tmp)
	b = appendU32(append(b, 0x23), t.fuel)
	b = appendU32(append(b, 0x20), t.tmp)
	b = append(b, 0x41, shift, 0x76, 0x6b)
	b = append(appendI32(append(b, 0x41), weight), 0x6b, 0x24)
	b = appendU32(b, t.fuel)
	return t.check(b)
}
