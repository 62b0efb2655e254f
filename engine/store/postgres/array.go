package postgres

import (
	"encoding/binary"
	"math"

	"github.com/jackc/pgx/v5/pgtype"
)

// array is an array argument in the binary format, written element by element.
// The driver's general way costs an allocation and a look at the type of each,
// and a settle sends 500 of everything. Only connections of the store's own pool
// can take it: see useArrays.
type array struct {
	n     int
	nulls bool
	buf   []byte // the elements
}

func newArray(n, bytes int) *array { return &array{buf: make([]byte, 0, n*(4+bytes))} }

func (a *array) null() {
	a.n, a.nulls = a.n+1, true
	a.buf = binary.BigEndian.AppendUint32(a.buf, math.MaxUint32)
}

// bytes adds an element of bytes, NULL for nil.
func (a *array) bytes(v []byte) {
	if v == nil {
		a.null()
		return
	}
	a.n++
	a.buf = binary.BigEndian.AppendUint32(a.buf, uint32(len(v)))
	a.buf = append(a.buf, v...)
}

func (a *array) text(v string) {
	a.n++
	a.buf = binary.BigEndian.AppendUint32(a.buf, uint32(len(v)))
	a.buf = append(a.buf, v...)
}

func (a *array) textOrNull(v *string) {
	if v == nil {
		a.null()
		return
	}
	a.text(*v)
}

func (a *array) int64(v int64) {
	a.n++
	a.buf = binary.BigEndian.AppendUint64(append(a.buf, 0, 0, 0, 8), uint64(v))
}

// appendTo appends the array, of elements of that type.
func (a *array) appendTo(buf []byte, element uint32) []byte {
	if a.n == 0 {
		return append(buf, 0, 0, 0, 0, 0, 0, 0, 0, byte(element>>24), byte(element>>16), byte(element>>8), byte(element))
	}
	flags := uint32(0)
	if a.nulls {
		flags = 1
	}
	for _, v := range [5]uint32{1, flags, element, uint32(a.n), 1} {
		buf = binary.BigEndian.AppendUint32(buf, v)
	}
	return append(buf, a.buf...)
}

// arrayCodec takes an *array as well as what the codec within takes.
type arrayCodec struct {
	pgtype.Codec
	element uint32
}

// PreferredFormat implements pgtype.Codec.
func (c arrayCodec) PreferredFormat() int16 { return pgtype.BinaryFormatCode }

// PlanEncode implements pgtype.Codec.
func (c arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(*array); ok && format == pgtype.BinaryFormatCode {
		return arrayPlan{c.element}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

type arrayPlan struct{ element uint32 }

func (p arrayPlan) Encode(value any, buf []byte) ([]byte, error) {
	return value.(*array).appendTo(buf, p.element), nil
}

// useArrays has a connection take arrays of the types that statements use.
func useArrays(m *pgtype.Map) {
	for _, of := range [][2]uint32{
		{pgtype.UUIDArrayOID, pgtype.UUIDOID}, {pgtype.TextArrayOID, pgtype.TextOID},
		{pgtype.ByteaArrayOID, pgtype.ByteaOID}, {pgtype.Int8ArrayOID, pgtype.Int8OID},
	} {
		if t, ok := m.TypeForOID(of[0]); ok {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: t.OID, Codec: arrayCodec{t.Codec, of[1]}})
		}
	}
}
