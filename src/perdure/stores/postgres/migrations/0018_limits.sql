-- Schema 18: limits of the work that workers share.

-- What may be done of the work of one subject: namespace:NAME, model:PROVIDER:NAME or
-- provider:NAME. turns is how many run at once, per_minute how many requests to models are sent,
-- waiting how many turns of a namespace may wait. sent_at is when the last request was permitted.
-- A limit that was removed keeps its row, without numbers: sent_at is never forgotten.
CREATE TABLE perdure.work_limit (
    subject    text COLLATE "C" PRIMARY KEY,
    turns      integer CHECK (turns >= 0),
    per_minute integer CHECK (per_minute > 0),
    waiting    integer CHECK (waiting > 0),
    sent_at    timestamptz
);

-- A turn of a limited subject, of a worker. It waits until it is granted, and is removed when it
-- has ended. Those of a dead worker do not count. id is a hash of worker and work, and names no
-- session. The first of the subjects is the namespace's.
CREATE TABLE perdure.work_slot (
    id         text COLLATE "C" PRIMARY KEY,
    worker     text COLLATE "C" NOT NULL REFERENCES perdure.worker (id) ON DELETE CASCADE,
    namespace  text COLLATE "C" NOT NULL,
    subjects   text[] COLLATE "C" NOT NULL,
    asked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    granted_at timestamptz
);
CREATE INDEX work_slot_worker ON perdure.work_slot (worker);

-- When a namespace was last granted a slot of a limited subject.
CREATE TABLE perdure.work_share (
    subject    text COLLATE "C" NOT NULL,
    namespace  text COLLATE "C" NOT NULL,
    granted_at timestamptz NOT NULL,
    PRIMARY KEY (subject, namespace)
);

-- A turn that is about to be requested. It counts as waiting until the commit of its request, which
-- has the idempotency key with this hash. A place whose program died is free after a minute.
CREATE TABLE perdure.work_place (
    namespace text COLLATE "C" NOT NULL,
    key       bytea NOT NULL,
    taken_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, key)
);

-- The next waiting slot that the limits allow, none if there is none. shared is the limited subject
-- that namespaces share: the provider, else the model, else nothing but the namespace. Of each
-- namespace the oldest slot is first. Of several namespaces it is the one with the fewest granted
-- slots of the shared subject; of equal ones, the one that was granted its last one first.
CREATE FUNCTION perdure.next_slot(OUT id text, OUT namespace text, OUT shared text)
RETURNS SETOF record LANGUAGE sql STABLE AS $$
    WITH alive AS MATERIALIZED (
        SELECT s.* FROM perdure.work_slot AS s
        JOIN perdure.worker AS w ON w.id = s.worker AND w.state <> 'dead'
    ), used AS MATERIALIZED (
        SELECT u.subject, a.namespace, count(*) AS n
        FROM alive AS a CROSS JOIN unnest(a.subjects) AS u (subject)
        WHERE a.granted_at IS NOT NULL GROUP BY u.subject, a.namespace
    ), limited AS MATERIALIZED (
        SELECT l.subject, l.turns <= coalesce(
            (SELECT sum(u.n) FROM used AS u WHERE u.subject = l.subject), 0
        ) AS is_full
        FROM perdure.work_limit AS l WHERE l.turns IS NOT NULL
    ), possible AS (
        SELECT a.*, coalesce((
            SELECT l.subject FROM limited AS l WHERE l.subject = ANY(a.subjects)
            ORDER BY array_position(a.subjects, l.subject) DESC LIMIT 1
        ), a.subjects[1]) AS shared
        FROM alive AS a
        WHERE a.granted_at IS NULL
            AND NOT EXISTS (SELECT FROM limited AS l WHERE l.is_full AND l.subject = ANY(a.subjects))
    ), oldest AS (
        SELECT DISTINCT ON (p.namespace, p.part) p.*
        FROM (
            SELECT q.*, CASE
                WHEN EXISTS (SELECT FROM limited AS l WHERE l.subject = q.subjects[1]) THEN ''
                ELSE q.shared
            END AS part
            FROM possible AS q
        ) AS p
        ORDER BY p.namespace, p.part, p.asked_at, p.id
    )
    SELECT o.id, o.namespace, o.shared
    FROM oldest AS o
    LEFT JOIN used AS u ON u.subject = o.shared AND u.namespace = o.namespace
    LEFT JOIN perdure.work_share AS h ON h.subject = o.shared AND h.namespace = o.namespace
    ORDER BY coalesce(u.n, 0), h.granted_at NULLS FIRST, o.asked_at, o.id
    LIMIT 1
$$;

-- Change the slots of a worker: those in _gone are removed, those in _new are stored. A slot that is
-- running is granted already, whatever the limits say. _new is JSON: id, namespace, subjects and
-- running of each. Only rows of the worker are locked: its own first, so that its removal waits.
CREATE FUNCTION perdure.change_slots(_worker text, _gone text[], _new json) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now timestamptz := clock_timestamp();
BEGIN
    -- Of a worker that is no longer registered, none is stored: it registers again first.
    PERFORM FROM perdure.worker AS w WHERE w.id = _worker FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    DELETE FROM perdure.work_slot AS s WHERE s.worker = _worker AND s.id = ANY(_gone);
    -- Slots that are new in one call keep their order.
    INSERT INTO perdure.work_slot AS o (id, worker, namespace, subjects, asked_at, granted_at)
    SELECT n.id, _worker, n.namespace, n.subjects, _now + n.place * interval '1 microsecond',
        CASE WHEN n.running THEN _now END
    FROM ROWS FROM (
        json_to_recordset(_new) AS (id text, namespace text, subjects text[], running boolean)
    ) WITH ORDINALITY AS n (id, namespace, subjects, running, place)
    ON CONFLICT (id) DO UPDATE SET granted_at = coalesce(o.granted_at, excluded.granted_at);
END
$$;

-- Grant waiting slots of all workers as far as the limits allow, at most 100 in a call; return those
-- of _worker. One call at a time grants. A slot that is removed at that moment ends the call: the
-- next one does not see it.
CREATE FUNCTION perdure.grant_slots(_worker text) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _next record;
    _owner text;
BEGIN
    IF NOT EXISTS (SELECT FROM perdure.next_slot()) THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(20585, 0);
    FOR _ IN 1..100 LOOP
        SELECT * INTO _next FROM perdure.next_slot();
        EXIT WHEN NOT FOUND;
        UPDATE perdure.work_slot AS s SET granted_at = clock_timestamp()
        WHERE s.id = (
            SELECT f.id FROM perdure.work_slot AS f WHERE f.id = _next.id
            FOR UPDATE SKIP LOCKED
        )
        RETURNING s.worker INTO _owner;
        EXIT WHEN NOT FOUND;
        INSERT INTO perdure.work_share VALUES (_next.shared, _next.namespace, clock_timestamp())
        ON CONFLICT (subject, namespace) DO UPDATE SET granted_at = excluded.granted_at;
        IF _owner = _worker THEN
            RETURN NEXT _next.id;
        END IF;
    END LOOP;
END
$$;

-- Permit a request to a model if the limits of all its subjects allow one now: 0. Else return the
-- seconds after which they might, and change nothing. Rows are locked in the order of their
-- subjects, so that no two calls wait for each other.
CREATE FUNCTION perdure.permit_request(_subjects text[]) RETURNS float8
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now timestamptz;
    _wait_s float8;
BEGIN
    PERFORM FROM perdure.work_limit AS l
    WHERE l.subject = ANY(_subjects) AND l.per_minute IS NOT NULL
    ORDER BY l.subject FOR UPDATE;
    _now := clock_timestamp();
    SELECT max(extract(epoch FROM
        l.sent_at + make_interval(secs => 60.0 / l.per_minute) - _now
    ))::float8 INTO _wait_s
    FROM perdure.work_limit AS l
    WHERE l.subject = ANY(_subjects) AND l.per_minute IS NOT NULL;
    IF _wait_s > 0 THEN
        RETURN _wait_s;
    END IF;
    UPDATE perdure.work_limit AS l SET sent_at = _now
    WHERE l.subject = ANY(_subjects) AND l.per_minute IS NOT NULL;
    RETURN 0;
END
$$;

-- Take a place for a turn of the namespace if fewer turns wait than its limit says. Those that wait
-- are its open requests that are due, and its places. Return how many waited, the limit, and the
-- age of the oldest in seconds; no row without a limit. The lock of the limit lets one call count
-- at a time. One statement counts, so a request is either a place or open in it.
CREATE FUNCTION perdure.take_place(_namespace text, _subject text, _key bytea)
RETURNS TABLE (waited bigint, most integer, oldest_s float8) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _now_ms bigint;
BEGIN
    PERFORM set_config('perdure.namespace', _namespace, true);
    SELECT l.waiting INTO most FROM perdure.work_limit AS l WHERE l.subject = _subject FOR UPDATE;
    IF most IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM perdure.work_place AS p WHERE p.namespace = _namespace AND p.key IN (
        SELECT o.key FROM perdure.work_place AS o
        WHERE o.namespace = _namespace AND o.taken_at < clock_timestamp() - interval '1 minute'
        FOR UPDATE SKIP LOCKED
    );
    _now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
    SELECT count(*), coalesce(greatest(_now_ms - min(f.since), 0), 0) / 1000.0
    INTO waited, oldest_s
    FROM (
        (
            SELECT greatest(e.at, e.due_at) AS since
            FROM (
                SELECT q.stream, q.seq FROM perdure.open_question AS q
                WHERE q.namespace = _namespace OFFSET 0
            ) AS q CROSS JOIN LATERAL (
                SELECT e.at, CASE WHEN position('"due_at":'::bytea IN e.body) > 0
                    THEN (convert_from(e.body, 'UTF8')::json ->> 'due_at')::bigint END AS due_at
                FROM perdure.entry AS e
                WHERE e.namespace = _namespace AND e.stream = q.stream AND e.seq = q.seq
                    AND e.kind = 'turn_requested' AND e.run IS NULL AND e.salt IS NOT NULL
                OFFSET 0
            ) AS e
            WHERE e.due_at IS NULL OR e.due_at <= _now_ms
            LIMIT most
        )
        UNION ALL
        SELECT (extract(epoch FROM p.taken_at) * 1000)::bigint FROM perdure.work_place AS p
        WHERE p.namespace = _namespace AND NOT EXISTS (
            SELECT FROM perdure.idempotency AS i
            WHERE i.namespace = _namespace AND i.key = p.key
        )
    ) AS f;
    IF waited < most THEN
        INSERT INTO perdure.work_place (namespace, key) VALUES (_namespace, _key);
    END IF;
    RETURN NEXT;
END
$$;

-- Give a place back.
CREATE FUNCTION perdure.leave_place(_namespace text, _key bytea) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('perdure.namespace', _namespace, true);
    DELETE FROM perdure.work_place AS p WHERE p.namespace = _namespace AND p.key = _key;
END
$$;

DO $$
DECLARE
    _table text;
BEGIN
    FOREACH _table IN ARRAY ARRAY['work_limit', 'work_slot', 'work_share', 'work_place'] LOOP
        EXECUTE format('ALTER TABLE perdure.%I ENABLE ROW LEVEL SECURITY', _table);
        EXECUTE format('ALTER TABLE perdure.%I FORCE ROW LEVEL SECURITY', _table);
    END LOOP;
    FOREACH _table IN ARRAY ARRAY['work_limit', 'work_slot', 'work_share'] LOOP
        EXECUTE format('CREATE POLICY everybody ON perdure.%I USING (true)', _table);
    END LOOP;
END
$$;

CREATE POLICY one_namespace ON perdure.work_place
    USING (namespace = current_setting('perdure.namespace', true));

DO $$
BEGIN
    GRANT SELECT, INSERT, UPDATE, DELETE ON perdure.work_limit, perdure.work_slot,
        perdure.work_share, perdure.work_place TO perdure_app;
    GRANT EXECUTE ON FUNCTION perdure.next_slot(), perdure.change_slots(text, text[], json),
        perdure.grant_slots(text), perdure.permit_request(text[]),
        perdure.take_place(text, text, bytea), perdure.leave_place(text, bytea) TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
