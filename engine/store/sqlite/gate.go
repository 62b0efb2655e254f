package sqlite

func (t *tx) waits(gate, queue string) (bool, error) {
	q := t.use(qBehindIn)
	q.text(gate)
	q.text(queue)
	found := q.step()
	return found, q.end()
}

// openNow has claims of every queue look behind a gate, if something waits there.
func (t *tx) openNow(gate string) error {
	for queue := ""; ; {
		q := t.use(qQueueBehind)
		q.text(gate)
		q.text(queue)
		found := q.step()
		if found {
			queue = q.colText(0)
		}
		if err := q.end(); err != nil || !found {
			return err
		}
		t.group.wake(queue)
		if err := t.open(queue, gate, t.now); err != nil {
			return err
		}
	}
}

func (t *tx) open(queue, gate string, at int64) error {
	q := t.use(qOpenGate)
	q.text(queue)
	q.text(gate)
	q.int(at)
	return q.exec()
}

// leave takes a run, that ended or was handed back, from the gate it was at. If
// others wait behind it, claims look there.
func (t *tx) leave(seq int64, gate string, held bool) error {
	if gate == "" {
		return nil
	}
	q := t.use(qLeaveGate)
	q.int(seq)
	if err := q.exec(); err != nil {
		return err
	}
	if !held {
		return nil
	}
	return t.openNow(gate)
}

// leaveAny takes a run from the gate that it holds or waits behind, if there is one.
func (t *tx) leaveAny(seq int64) error {
	q := t.use(qAtGate)
	q.int(seq)
	gate, held := "", false
	if q.step() {
		gate, held = q.colText(0), q.colInt(1) != 0
	}
	if err := q.end(); err != nil {
		return err
	}
	return t.leave(seq, gate, held)
}
