package wasmbin

import "fmt"

type dataSegment struct {
	passive bool
	offset  constant
	bytes   []byte
}

func (p *parsed) parseData(r *reader) {
	n := r.count("data segments", 2, maxSegments)
	p.datas = make([]dataSegment, 0, n)
	for range n {
		var d dataSegment
		switch r.u32() {
		case 0:
			d.offset = p.constExpr(r)
		case 1:
			d.passive = true
		case 2:
			if r.u32() != 0 && r.ok() {
				r.malformed("a data segment for a memory other than 0")
			}
			d.offset = p.constExpr(r)
		default:
			r.malformed("unknown kind of data segment")
		}
		d.bytes = r.skip(r.u32())
		if !r.ok() {
			return
		}
		p.datas = append(p.datas, d)
	}
}

// hostData is whether the host can apply all data itself, and what it then
// copies: all offsets are known, and no instruction names a segment.
func (p *parsed) hostData(refersToData bool) ([]Segment, bool) {
	if refersToData {
		return nil, false
	}
	segs := make([]Segment, 0, len(p.datas))
	for _, d := range p.datas {
		if d.passive {
			continue
		}
		if !d.offset.known {
			return nil, false
		}
		if len(d.bytes) > 0 {
			segs = append(segs, Segment{uint32(d.offset.value), d.bytes})
		}
	}
	return segs, true
}

// dataOutside is a reason to reject: a segment that does not fit the memory
// traps whenever the module is instantiated.
func (p *parsed) dataOutside() string {
	if len(p.memories) == 0 {
		return ""
	}
	size := uint64(p.memories[0].min) << 16
	for i, d := range p.datas {
		if d.passive || !d.offset.known {
			continue
		}
		if end := uint64(uint32(d.offset.value)) + uint64(len(d.bytes)); end > size {
			return fmt.Sprintf("its data segment %d ends at byte %d, its memory has %d at the start; no instance can be made of it", i, end, size)
		}
	}
	return ""
}
