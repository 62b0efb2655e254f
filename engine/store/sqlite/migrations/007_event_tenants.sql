-- Whose an event is; '' is nobody's in particular. A run gets its tenant's events
-- and those, and a run of no tenant gets all.
ALTER TABLE events ADD COLUMN tenant TEXT NOT NULL DEFAULT '';

CREATE INDEX events_tenant ON events (topic, tenant, seq);
CREATE INDEX events_tenant_key ON events (topic, key, tenant, seq) WHERE key <> '';

DROP INDEX runs_topic;
CREATE INDEX runs_topic ON runs (topic, event_key, tenant, id) WHERE topic IS NOT NULL;
