package wasmbin_test

import (
	"testing"

	"github.com/jobrunner/runner/abi/wasmasm"
)

// kernel is a CPU-bound function (i32) -> i64 to compare plain with metered.
type kernel struct {
	name string
	arg  uint64 // for a benchmark
	few  uint64 // for a test with a tiny quantum
	add  func(m *wasmasm.Module) wasmasm.Func
}

const (
	i32 = wasmasm.I32
	i64 = wasmasm.I64
	f64 = wasmasm.F64
)

func types(t ...wasmasm.ValType) []wasmasm.ValType { return t }

var kernels = []kernel{
	{"sort", 20_000, 300, addSort},
	{"matmul", 120, 9, addMatmul},
	{"fnv", 1_000_000, 1000, addFNV},
	{"sum", 2_000_000, 1000, addSum},
	{"fib", 25, 12, addFib},
	{"sieve", 1_000_000, 2000, addSieve},
	{"dispatch", 200_000, 500, addDispatch},
}

// kernelModule exports each kernel under its name, over a memory of 64 pages.
func kernelModule(tb testing.TB) []byte {
	m := wasmasm.New()
	m.Memory(64, 0)
	m.ExportMemory("memory", 0)
	for _, k := range kernels {
		m.ExportFunc(k.name, k.add(m))
	}
	return build(tb, m)
}

func build(tb testing.TB, m *wasmasm.Module) []byte {
	tb.Helper()
	b, err := m.Build()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// up writes: for i := from; i < n; i++ { body }.
func up(c *wasmasm.Code, i uint32, from int32, n uint32, body func()) {
	c.I32Const(from).LocalSet(i)
	c.Block(wasmasm.Empty).LocalGet(i).LocalGet(n).Op(wasmasm.I32GeS).BrIf(0)
	c.Loop(wasmasm.Empty)
	body()
	c.LocalGet(i).I32Const(1).Op(wasmasm.I32Add).LocalTee(i).LocalGet(n).Op(wasmasm.I32LtS).BrIf(0)
	c.End().End()
}

// fill writes pseudo-random i32 to memory: seed is a local.
func fillRandom(c *wasmasm.Code, i, n, seed uint32) {
	c.I32Const(12345).LocalSet(seed)
	up(c, i, 0, n, func() {
		c.LocalGet(seed).I32Const(1103515245).Op(wasmasm.I32Mul).I32Const(12345).Op(wasmasm.I32Add).LocalSet(seed)
		c.LocalGet(i).I32Const(2).Op(wasmasm.I32Shl).LocalGet(seed).Mem(wasmasm.I32Store, 0)
	})
}

// addSort is a shell sort of n random i32, answering a[n/2].
func addSort(m *wasmasm.Module) wasmasm.Func {
	return m.Func(types(i32), types(i64), func(c *wasmasm.Code) {
		n := uint32(0)
		i, j, gap, x, y := c.Local(i32), c.Local(i32), c.Local(i32), c.Local(i32), c.Local(i32)
		fillRandom(c, i, n, x)
		c.LocalGet(n).LocalSet(gap)
		c.Loop(wasmasm.Empty)
		c.LocalGet(gap).I32Const(2).Op(wasmasm.I32DivU).LocalSet(gap)
		c.LocalGet(gap).LocalSet(i)
		c.Block(wasmasm.Empty).LocalGet(i).LocalGet(n).Op(wasmasm.I32GeS).BrIf(0)
		c.Loop(wasmasm.Empty)
		c.LocalGet(i).I32Const(2).Op(wasmasm.I32Shl).Mem(wasmasm.I32Load, 0).LocalSet(x)
		c.LocalGet(i).LocalSet(j)
		c.Block(wasmasm.Empty)
		c.Loop(wasmasm.Empty)
		c.LocalGet(j).LocalGet(gap).Op(wasmasm.I32LtS).BrIf(1)
		c.LocalGet(j).LocalGet(gap).Op(wasmasm.I32Sub).I32Const(2).Op(wasmasm.I32Shl).Mem(wasmasm.I32Load, 0).LocalTee(y)
		c.LocalGet(x).Op(wasmasm.I32LeS).BrIf(1)
		c.LocalGet(j).I32Const(2).Op(wasmasm.I32Shl).LocalGet(y).Mem(wasmasm.I32Store, 0)
		c.LocalGet(j).LocalGet(gap).Op(wasmasm.I32Sub).LocalSet(j)
		c.Br(0).End().End()
		c.LocalGet(j).I32Const(2).Op(wasmasm.I32Shl).LocalGet(x).Mem(wasmasm.I32Store, 0)
		c.LocalGet(i).I32Const(1).Op(wasmasm.I32Add).LocalTee(i).LocalGet(n).Op(wasmasm.I32LtS).BrIf(0)
		c.End().End()
		c.LocalGet(gap).I32Const(1).Op(wasmasm.I32GtU).BrIf(0)
		c.End()
		c.LocalGet(n).I32Const(1).Op(wasmasm.I32ShrU).I32Const(2).Op(wasmasm.I32Shl).Mem(wasmasm.I32Load, 0).Op(wasmasm.I64ExtendI32S)
	})
}

// addMatmul multiplies two n×n matrices of f64, answering the bits of the
// trace. Their entries are computed as they are written.
func addMatmul(m *wasmasm.Module) wasmasm.Func {
	return m.Func(types(i32), types(i64), func(c *wasmasm.Code) {
		n := uint32(0)
		i, j, k, a, b := c.Local(i32), c.Local(i32), c.Local(i32), c.Local(i32), c.Local(i32)
		sum, trace := c.Local(f64), c.Local(f64)
		const second, third = 1 << 20, 2 << 20
		up(c, i, 0, n, func() {
			up(c, j, 0, n, func() {
				c.LocalGet(i).LocalGet(n).Op(wasmasm.I32Mul).LocalGet(j).Op(wasmasm.I32Add).I32Const(3).Op(wasmasm.I32Shl).LocalTee(a)
				c.LocalGet(i).LocalGet(j).Op(wasmasm.I32Xor, wasmasm.F64ConvertI32S).Mem(wasmasm.F64Store, 0)
				c.LocalGet(a).LocalGet(i).LocalGet(j).Op(wasmasm.I32Add, wasmasm.F64ConvertI32S).Mem(wasmasm.F64Store, second)
			})
		})
		up(c, i, 0, n, func() {
			up(c, j, 0, n, func() {
				c.F64Const(0).LocalSet(sum)
				c.LocalGet(i).LocalGet(n).Op(wasmasm.I32Mul).I32Const(3).Op(wasmasm.I32Shl).LocalSet(a)
				c.LocalGet(j).I32Const(3).Op(wasmasm.I32Shl).LocalSet(b)
				up(c, k, 0, n, func() {
					c.LocalGet(sum).LocalGet(a).Mem(wasmasm.F64Load, 0).LocalGet(b).Mem(wasmasm.F64Load, second).Op(wasmasm.F64Mul, wasmasm.F64Add).LocalSet(sum)
					c.LocalGet(a).I32Const(8).Op(wasmasm.I32Add).LocalSet(a)
					c.LocalGet(b).LocalGet(n).I32Const(3).Op(wasmasm.I32Shl, wasmasm.I32Add).LocalSet(b)
				})
				c.LocalGet(i).LocalGet(n).Op(wasmasm.I32Mul).LocalGet(j).Op(wasmasm.I32Add).I32Const(3).Op(wasmasm.I32Shl).LocalGet(sum).Mem(wasmasm.F64Store, third)
			})
			c.LocalGet(trace).LocalGet(i).LocalGet(n).I32Const(1).Op(wasmasm.I32Add, wasmasm.I32Mul).I32Const(3).Op(wasmasm.I32Shl).Mem(wasmasm.F64Load, third).Op(wasmasm.F64Add).LocalSet(trace)
		})
		c.LocalGet(trace).Op(wasmasm.I64ReinterpretF64)
	})
}

// addFNV is the FNV-1a hash of n bytes.
func addFNV(m *wasmasm.Module) wasmasm.Func {
	return m.Func(types(i32), types(i64), func(c *wasmasm.Code) {
		i, h := c.Local(i32), c.Local(i64)
		c.I64Const(-3750763034362895579).LocalSet(h)
		up(c, i, 0, 0, func() {
			c.LocalGet(h).LocalGet(i).Mem(wasmasm.I64Load8U, 0).Op(wasmasm.I64Xor).I64Const(1099511628211).Op(wasmasm.I64Mul).LocalSet(h)
		})
		c.LocalGet(h)
	})
}

// addSum is the tightest loop there is.
func addSum(m *wasmasm.Module) wasmasm.Func {
	return m.Func(types(i32), types(i64), func(c *wasmasm.Code) {
		i, s := c.Local(i32), c.Local(i64)
		up(c, i, 0, 0, func() {
			c.LocalGet(s).LocalGet(i).Op(wasmasm.I64ExtendI32U, wasmasm.I64Add).LocalSet(s)
		})
		c.LocalGet(s)
	})
}

// addFib is the naive recursion.
func addFib(m *wasmasm.Module) wasmasm.Func {
	return m.Func(types(i32), types(i64), func(c *wasmasm.Code) {
		c.LocalGet(0).I32Const(2).Op(wasmasm.I32LtS).If(wasmasm.Yields(i64))
		c.LocalGet(0).Op(wasmasm.I64ExtendI32S)
		c.Else()
		c.LocalGet(0).I32Const(1).Op(wasmasm.I32Sub).Call(c.Self)
		c.LocalGet(0).I32Const(2).Op(wasmasm.I32Sub).Call(c.Self).Op(wasmasm.I64Add)
		c.End()
	})
}

// addSieve counts the primes below n.
func addSieve(m *wasmasm.Module) wasmasm.Func {
	return m.Func(types(i32), types(i64), func(c *wasmasm.Code) {
		n := uint32(0)
		i, j, count := c.Local(i32), c.Local(i32), c.Local(i64)
		c.I32Const(0).I32Const(1).LocalGet(n).MemoryFill()
		up(c, i, 2, n, func() {
			c.LocalGet(i).Mem(wasmasm.I32Load8U, 0).If(wasmasm.Empty)
			c.LocalGet(count).I64Const(1).Op(wasmasm.I64Add).LocalSet(count)
			c.LocalGet(i).LocalGet(i).Op(wasmasm.I32Add).LocalSet(j)
			c.Block(wasmasm.Empty).Loop(wasmasm.Empty)
			c.LocalGet(j).LocalGet(n).Op(wasmasm.I32GeU).BrIf(1)
			c.LocalGet(j).I32Const(0).Mem(wasmasm.I32Store8, 0)
			c.LocalGet(j).LocalGet(i).Op(wasmasm.I32Add).LocalSet(j)
			c.Br(0).End().End()
			c.End()
		})
		c.LocalGet(count)
	})
}

// addDispatch is the shape of code that resumes anywhere: one loop around a
// table of blocks, with its values in many locals.
func addDispatch(m *wasmasm.Module) wasmasm.Func {
	return m.Func(types(i32), types(i64), func(c *wasmasm.Code) {
		pc, i := c.Local(i32), c.Local(i32)
		var regs [12]uint32
		for k := range regs {
			regs[k] = c.Local(i64)
		}
		c.Block(wasmasm.Empty).Loop(wasmasm.Empty)
		c.Block(wasmasm.Empty).Block(wasmasm.Empty).Block(wasmasm.Empty)
		c.LocalGet(pc).BrTable(0, 1, 2)
		c.End() // 0: mix the first half
		for k := range 6 {
			c.LocalGet(regs[k]).I64Const(int64(k) + 3).Op(wasmasm.I64Add).LocalGet(regs[k+6]).Op(wasmasm.I64Xor).LocalSet(regs[k])
		}
		c.I32Const(1).LocalSet(pc).Br(2)
		c.End() // 1: mix the second half
		for k := range 6 {
			c.LocalGet(regs[k+6]).I64Const(7).Op(wasmasm.I64Rotl).LocalGet(regs[k]).Op(wasmasm.I64Add).LocalSet(regs[k+6])
		}
		c.I32Const(2).LocalSet(pc).Br(1)
		c.End() // 2: count and go round
		c.I32Const(0).LocalSet(pc)
		c.LocalGet(i).I32Const(1).Op(wasmasm.I32Add).LocalTee(i).LocalGet(0).Op(wasmasm.I32LtS).BrIf(0)
		c.Br(1)
		c.End().End()
		c.LocalGet(regs[0])
		for _, r := range regs[1:] {
			c.LocalGet(r).Op(wasmasm.I64Xor)
		}
	})
}
