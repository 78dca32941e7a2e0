-- Schema 19: priorities of turns that wait for a limit.

-- The lowest rank is first. Workers of earlier versions store none.
ALTER TABLE perdure.work_slot ADD COLUMN rank integer NOT NULL DEFAULT 0;

-- As before, but of the slots of a namespace those of the lowest rank are first, the oldest of them.
CREATE OR REPLACE FUNCTION perdure.next_slot(OUT id text, OUT namespace text, OUT shared text)
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
        ORDER BY p.namespace, p.part, p.rank, p.asked_at, p.id
    )
    SELECT o.id, o.namespace, o.shared
    FROM oldest AS o
    LEFT JOIN used AS u ON u.subject = o.shared AND u.namespace = o.namespace
    LEFT JOIN perdure.work_share AS h ON h.subject = o.shared AND h.namespace = o.namespace
    ORDER BY coalesce(u.n, 0), h.granted_at NULLS FIRST, o.asked_at, o.id
    LIMIT 1
$$;

-- As before, but _new may have the rank of each slot.
CREATE OR REPLACE FUNCTION perdure.change_slots(_worker text, _gone text[], _new json) RETURNS void
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
    INSERT INTO perdure.work_slot AS o
        (id, worker, namespace, subjects, rank, asked_at, granted_at)
    SELECT n.id, _worker, n.namespace, n.subjects, coalesce(n.rank, 0),
        _now + n.place * interval '1 microsecond', CASE WHEN n.running THEN _now END
    FROM ROWS FROM (
        json_to_recordset(_new)
            AS (id text, namespace text, subjects text[], running boolean, rank integer)
    ) WITH ORDINALITY AS n (id, namespace, subjects, running, rank, place)
    ON CONFLICT (id) DO UPDATE SET granted_at = coalesce(o.granted_at, excluded.granted_at);
END
$$;
