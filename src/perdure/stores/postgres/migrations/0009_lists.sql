-- Schema 9: lists, the inbox and retention cost what they return, not what the namespace holds.

-- The owner sees every namespace while the new columns are filled.
ALTER TABLE perdure.stream NO FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.birth NO FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.entry NO FORCE ROW LEVEL SECURITY;

-- folder is the first half of the SHA-256 of the session's folder; NULL where it has none. is_active
-- and created_at are those of the session's info.
ALTER TABLE perdure.stream
    ADD COLUMN folder bytea,
    ADD COLUMN is_active boolean NOT NULL DEFAULT true,
    ADD COLUMN created_at bigint NOT NULL DEFAULT 0;

-- A JSON text that PostgreSQL cannot hold (one with a NUL) is left: no path has any.
DO $$
DECLARE
    _row record;
    _info json;
BEGIN
    FOR _row IN
        SELECT s.namespace, s.id, s.info, b.header FROM perdure.stream AS s
        JOIN perdure.birth AS b ON b.namespace = s.namespace AND b.stream = s.id
    LOOP
        BEGIN
            _info := convert_from(_row.info, 'UTF8')::json;
            UPDATE perdure.stream AS s SET
                folder = substr(sha256(convert_to(_info ->> 'cwd', 'UTF8')), 1, 16),
                is_active = coalesce(_info ->> 'status', 'active') = 'active',
                created_at = (convert_from(_row.header, 'UTF8')::json ->> 'created_at')::bigint
            WHERE s.namespace = _row.namespace AND s.id = _row.id;
        EXCEPTION WHEN data_exception THEN
            NULL;
        END;
    END LOOP;
END
$$;

DROP INDEX perdure.stream_recent;
CREATE INDEX stream_recent ON perdure.stream (namespace, origin, is_active, updated_at, id)
    WHERE kind = 'session';
CREATE INDEX stream_by_folder ON perdure.stream (namespace, folder, origin, updated_at, id)
    WHERE kind = 'session' AND folder IS NOT NULL;
CREATE INDEX stream_by_age ON perdure.stream (namespace, created_at)
    WHERE kind = 'session' AND NOT is_erased;
CREATE INDEX idempotency_by_age ON perdure.idempotency (namespace, at);

-- Questions that no entry of their own session closes.
CREATE TABLE perdure.open_question (
    namespace text COLLATE "C" NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    seq       bigint NOT NULL,
    PRIMARY KEY (namespace, stream, seq)
);

INSERT INTO perdure.open_question
SELECT q.namespace, q.stream, q.seq FROM perdure.entry AS q
WHERE q.kind = 'question' AND q.run IS NULL AND q.salt IS NOT NULL AND NOT EXISTS (
    SELECT FROM perdure.entry AS a WHERE a.namespace = q.namespace AND a.stream = q.stream
        AND a.kind IN ('answer', 'question_withdrawn') AND a.run IS NULL AND a.ref = q.seq);

-- The counts of a namespace up to a position. Some reads write them (postgres/usage). streams and
-- entries include what was erased, the others do not. Removing something from the log raises
-- generation, and the next read counts everything again.
CREATE TABLE perdure.usage (
    namespace  text COLLATE "C" PRIMARY KEY,
    generation bigint NOT NULL DEFAULT 0,
    position   bigint NOT NULL DEFAULT 0,
    streams    bigint NOT NULL DEFAULT 0,
    sessions   bigint NOT NULL DEFAULT 0,
    flows      bigint NOT NULL DEFAULT 0,
    entries    bigint NOT NULL DEFAULT 0,
    kept       bigint NOT NULL DEFAULT 0,
    body_bytes bigint NOT NULL DEFAULT 0
);

ALTER TABLE perdure.usage ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.usage FORCE ROW LEVEL SECURITY;
CREATE POLICY one_namespace ON perdure.usage
    USING (namespace = current_setting('perdure.namespace', true));

ALTER TABLE perdure.stream FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.birth FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.entry FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.open_question ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.open_question FORCE ROW LEVEL SECURITY;
CREATE POLICY one_namespace ON perdure.open_question
    USING (namespace = current_setting('perdure.namespace', true));

DO $$
BEGIN
    GRANT SELECT, INSERT, DELETE ON perdure.open_question TO perdure_app;
    GRANT SELECT, INSERT, UPDATE ON perdure.usage TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
