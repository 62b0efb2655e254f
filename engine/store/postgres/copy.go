package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// copyMin is the least batch that goes in by COPY: it takes three round trips
// more than an INSERT, and half the time per row.
const copyMin = 200

// copyable reports whether COPY can insert the batch: no keys but the runs' own
// ids, since it cannot pass over their conflicts, and nothing that the statement has to compute.
func (b *entries) copyable() bool {
	if len(b.batch) < copyMin || b.keyed {
		return false
	}
	for i := range b.batch {
		if p := &b.batch[i]; !p.RunAt.IsZero() || p.Delay > 0 {
			return false
		}
	}
	return true
}

// copyColumns are those of a row that COPY sends; the others have defaults.
const copyColumns = "id, job, queue, tenant, priority, max_attempts, parent, enqueued_by, traceparent, gate, key, input"

// copyNew is enqueueNew by COPY, all or nothing.
func (s *Store) copyNew(ctx context.Context, b *entries) (left []int, err error) {
	all := b.all()
	notify := s.notes.pick(b.batch)
	var apart []int
	for i := range b.batch {
		if len(b.batch[i].Input) > inlineInput {
			apart = append(apart, i)
		}
	}
	into := pgx.Identifier{s.cfg.Schema, "waiting"}.Sanitize() + " (" + copyColumns + ")"
	if b.new && len(apart) == 0 && len(notify) == 0 {
		return nil, s.copyAlone(ctx, b, into)
	}
	inputs := pgx.Identifier{s.cfg.Schema, "inputs"}.Sanitize() + " (run_id, input)"
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		rows := copyEncoder{b: b}
		if err := copyTo(ctx, tx.Conn(), into, len(all), func(w *copyBuffer, n int) { rows.run(w, n) }); err != nil {
			return err
		}
		if len(apart) > 0 {
			err := copyTo(ctx, tx.Conn(), inputs, len(apart), func(w *copyBuffer, n int) {
				w.fields(2)
				w.bytes(b.ids[apart[n]][:])
				w.bytes(b.batch[apart[n]].Input)
			})
			if err != nil {
				return err
			}
		}
		var calls []call
		if !b.new {
			calls = append(calls, b.check(all))
		}
		if len(notify) > 0 {
			calls = append(calls, s.notes.call(notify))
		}
		if len(calls) == 0 {
			return nil
		}
		return s.runAll(ctx, tx, calls...)
	})
	switch state := sqlState(err); {
	case state == stateRefused, state == "23505": // unique_violation
		return all, nil
	case err != nil:
		return nil, err
	}
	for i := range b.batch {
		b.enter(i, job.Ready, true)
	}
	return nil, nil
}

// copyAlone is copyNew of runs that are new and need nothing but their rows: the
// COPY is the transaction. Large batches go in as two halves at a time, which keeps
// the server and this process busy together.
func (s *Store) copyAlone(ctx context.Context, b *entries, into string) error {
	part := func(from, to int) error {
		return s.on(ctx, func(c *pgx.Conn) (sent bool, err error) {
			rows := copyEncoder{b: b}
			return true, copyTo(ctx, c, into, to-from, func(w *copyBuffer, n int) { rows.run(w, from+n) })
		})
	}
	n := len(b.batch)
	var err error
	if n < 2*copyMin {
		err = part(0, n)
	} else {
		other := make(chan error, 1)
		go func() { other <- part(n/2, n) }()
		err = part(0, n/2)
		if second := <-other; (err == nil) != (second == nil) {
			err = errors.Join(err, second, store.ErrUnknown) // one of them is in
		} else {
			err = errors.Join(err, second)
		}
	}
	if err != nil {
		return err
	}
	for i := range b.batch {
		b.enter(i, job.Ready, true)
	}
	return nil
}

// copyTo sends n rows in the binary format of COPY.
func copyTo(ctx context.Context, c *pgx.Conn, into string, n int, row func(w *copyBuffer, n int)) error {
	r := &copyReader{n: n, row: row}
	_, err := c.PgConn().CopyFrom(ctx, r, "COPY "+into+" FROM STDIN (FORMAT binary)")
	return err
}

// copyReader makes rows as they are read.
type copyReader struct {
	copyBuffer
	n, at int // rows in all, and made
	off   int // bytes of the buffer that were read
	row   func(w *copyBuffer, n int)
	ended bool
}

func (r *copyReader) Read(p []byte) (int, error) {
	if r.off == len(r.buf) {
		r.buf, r.off = r.buf[:0], 0
		if r.at == 0 && !r.ended {
			r.buf = append(r.buf, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
		}
		for ; r.at < r.n && len(r.buf) < len(p); r.at++ {
			r.row(&r.copyBuffer, r.at)
		}
		if r.at == r.n && !r.ended {
			r.buf = binary.BigEndian.AppendUint16(r.buf, math.MaxUint16)
			r.ended = true
		}
		if len(r.buf) == 0 {
			return 0, io.EOF
		}
	}
	n := copy(p, r.buf[r.off:])
	r.off += n
	return n, nil
}

// copyBuffer holds rows in the binary format.
type copyBuffer struct{ buf []byte }

func (w *copyBuffer) fields(n int) { w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(n)) }

func (w *copyBuffer) bytes(v []byte) {
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(v)))
	w.buf = append(w.buf, v...)
}

func (w *copyBuffer) text(v string) {
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(v)))
	w.buf = append(w.buf, v...)
}

func (w *copyBuffer) null() { w.buf = binary.BigEndian.AppendUint32(w.buf, math.MaxUint32) }

func (w *copyBuffer) textOrNull(v string) {
	if v == "" {
		w.null()
		return
	}
	w.text(enc(v))
}

// copyEncoder writes the rows of a batch.
type copyEncoder struct {
	b *entries
	// The texts of the row before, which most rows repeat, as they are and as
	// they are stored.
	job, queue             string
	storedJob, storedQueue string
}

func (c *copyEncoder) run(w *copyBuffer, n int) {
	p := &c.b.batch[n]
	if n == 0 || p.Job != c.job {
		c.job, c.storedJob = p.Job, enc(p.Job)
	}
	if n == 0 || p.Queue != c.queue {
		c.queue, c.storedQueue = p.Queue, enc(p.Queue)
	}
	w.fields(1 + strings.Count(copyColumns, ","))
	w.bytes(c.b.ids[n][:])
	w.text(c.storedJob)
	w.text(c.storedQueue)
	w.text(enc(p.Tenant))
	w.buf = binary.BigEndian.AppendUint16(append(w.buf, 0, 0, 0, 2), uint16(p.Priority))
	w.buf = binary.BigEndian.AppendUint32(append(w.buf, 0, 0, 0, 4), uint32(p.MaxAttempts))
	if parent, ok := parseUUID(p.Parent); ok {
		w.bytes(parent[:])
	} else {
		w.null()
	}
	w.textOrNull(p.EnqueuedBy)
	w.textOrNull(p.Traceparent)
	w.textOrNull(p.Gate)
	if p.Key == "" {
		w.null()
	} else {
		w.text("") // its own id
	}
	if len(p.Input) > inlineInput {
		w.null()
	} else {
		w.bytes(p.Input)
	}
}
