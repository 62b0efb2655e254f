package sqlite

import "github.com/jobrunner/runner/engine/internal/runid"

// uuid is a run's id as it is stored.
type uuid = runid.ID

func parseUUID(s string) (uuid, bool) { return runid.Parse(s) }

// formatUUID is the text of stored bytes; "" for anything but sixteen of them.
func formatUUID(b []byte) string { return runid.Format(b) }

func prefixRange(prefix string) (low, high uuid, ok bool) { return runid.Range(prefix) }
