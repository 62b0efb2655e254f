-- How far each schedule has come.
CREATE TABLE {schema}.schedules (
  name               text        NOT NULL COLLATE "C" PRIMARY KEY,
  spec               text        NOT NULL COLLATE "C", -- what occurrences were last computed from
  watermark          timestamptz NOT NULL, -- occurrences up to here have been dealt with
  fired_occurrence   timestamptz,
  fired_at           timestamptz,
  fires              bigint      NOT NULL DEFAULT 0,
  skipped_occurrence timestamptz,
  skipped_for        uuid,
  skips              bigint      NOT NULL DEFAULT 0,
  missed             bigint      NOT NULL DEFAULT 0,
  paused_at          timestamptz,
  paused_by          text        NOT NULL DEFAULT '' COLLATE "C",
  holder             text        NOT NULL DEFAULT '' COLLATE "C",
  leased_until       timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
