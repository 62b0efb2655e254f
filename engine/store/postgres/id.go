package postgres

import "github.com/jobrunner/runner/engine/internal/runid"

// uuid is a run's id as it is stored: a type of this package's own, for param.
type uuid runid.ID

func (u uuid) String() string { return runid.ID(u).String() }

func parseUUID(s string) (uuid, bool) {
	id, ok := runid.Parse(s)
	return uuid(id), ok
}

// formatUUID is the text of stored bytes; "" for anything but sixteen of them.
func formatUUID(b []byte) string { return runid.Format(b) }

func prefixRange(prefix string) (low, high uuid, ok bool) {
	l, h, ok := runid.Range(prefix)
	return uuid(l), uuid(h), ok
}
