package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// param is the id as an argument.
func (u uuid) param() pgtype.UUID { return pgtype.UUID{Bytes: u, Valid: true} }

// idParam is an id in a text that was checked; NULL for any other.
func idParam(s string) pgtype.UUID {
	u, ok := parseUUID(s)
	return pgtype.UUID{Bytes: u, Valid: ok}
}

// ms is a duration in whole milliseconds, not negative.
func ms(d time.Duration) int64 { return max(d.Milliseconds(), 0) }
