-- Words that no build writes are refused, and what an aged run was enqueued with is kept.

-- A check can come only with a column. This one takes no room, and goes for nothing
-- (DROP COLUMN) when a later build has other words. Conditions avoid IN: see above.

ALTER TABLE runs ADD COLUMN asked_priority INTEGER; -- of a run that has aged
UPDATE runs SET asked_priority = 0 WHERE priority = -101 AND (state = 'ready' OR state = 'blocked');
UPDATE runs SET priority = 0 WHERE priority = -101 AND asked_priority IS NULL;

ALTER TABLE runs ADD COLUMN known INTEGER AS (1) VIRTUAL CONSTRAINT runs_known CHECK (
  CASE WHEN finished_at IS NULL
    THEN state = 'ready' OR state = 'running' OR state = 'delayed' OR state = 'suspended' OR state = 'blocked'
    ELSE state = 'done' OR state = 'failed' OR state = 'dead' OR state = 'cancelled'
  END
  AND (asked_priority IS NULL AND priority BETWEEN -100 AND 100 OR asked_priority IS NOT NULL AND priority = -101));

ALTER TABLE steps ADD COLUMN known INTEGER AS (1) VIRTUAL CONSTRAINT steps_known CHECK (
  (status = 'completed' OR status = 'started' OR status = 'failed' OR status = 'retrying' OR status = 'sleeping'
    OR status = 'waiting' OR status = 'timed-out')
  AND (kind = 'step' OR kind = 'undoable' OR kind = 'sleep' OR kind = 'enqueue' OR kind = 'publish' OR kind = 'wait'
    OR kind = 'invoke' OR kind = 'unwind' OR kind = 'compensation'));

ALTER TABLE attempts ADD COLUMN known INTEGER AS (1) VIRTUAL CONSTRAINT attempts_known CHECK (
  outcome = 'completed' OR outcome = 'suspended' OR outcome = 'retried' OR outcome = 'dead-lettered' OR outcome = 'dropped'
  OR outcome = 'interrupted' OR outcome = 'deferred' OR outcome = 'shed' OR outcome = 'unwinding' OR outcome = 'undone'
  OR outcome = 'refused' OR outcome = 'orphaned');

ALTER TABLE pauses ADD COLUMN known INTEGER AS (1) VIRTUAL CONSTRAINT pauses_known CHECK (kind = 'queue' OR kind = 'job' OR kind = 'tenant');

-- What one operator did, and where something was done.
CREATE INDEX audit_actor ON audit (actor, id);
CREATE INDEX audit_verb ON audit (verb, id);
