-- Schema 14: workers, and the control state of the work that they share.
--
-- The log stays the truth: every row here can be lost, and the workers make it again from the log.

-- A worker is a process that runs turns. no is its key among advisory locks. Its turns hold leases
-- as owner. beat_at is when it last reported, by the clock of the server. A dead worker is one whose
-- silence was noticed: its leases were revoked, and its work was queued again. It belongs to no
-- namespace: it serves those in namespaces, and takes work from queues.
CREATE TABLE perdure.worker (
    id         text COLLATE "C" PRIMARY KEY,
    no         integer GENERATED ALWAYS AS IDENTITY UNIQUE,
    owner      text NOT NULL,
    version    text NOT NULL,
    protocol   integer NOT NULL,
    namespaces text[] NOT NULL,
    agents     text[] NOT NULL,
    queues     text[] NOT NULL DEFAULT '{}',
    slots      integer NOT NULL,
    running    integer NOT NULL DEFAULT 0,
    state      text NOT NULL DEFAULT 'alive' CHECK (state IN ('alive', 'draining', 'dead')),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    beat_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    died_at    timestamptz
);

-- What was counted since the database was made: takeovers, false takeovers, work queued again.
CREATE TABLE perdure.cluster_count (
    name text COLLATE "C" PRIMARY KEY,
    n    bigint NOT NULL
);

-- What work of one queue needs of a worker, as JSON (client.cluster.requirements).
CREATE TABLE perdure.work_class (
    namespace text COLLATE "C" NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    requires  bytea NOT NULL,
    PRIMARY KEY (namespace, queue)
);

-- Workers that died while they ran a piece of work; work is the id of its workflow.
CREATE TABLE perdure.lost_work (
    namespace text COLLATE "C" NOT NULL,
    work      text COLLATE "C" NOT NULL,
    worker    text COLLATE "C" NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, work, worker)
);

DO $$
DECLARE
    _table text;
BEGIN
    FOREACH _table IN ARRAY ARRAY['worker', 'cluster_count', 'work_class', 'lost_work'] LOOP
        EXECUTE format('ALTER TABLE perdure.%I ENABLE ROW LEVEL SECURITY', _table);
        EXECUTE format('ALTER TABLE perdure.%I FORCE ROW LEVEL SECURITY', _table);
    END LOOP;
    FOREACH _table IN ARRAY ARRAY['work_class', 'lost_work'] LOOP
        EXECUTE format(
            'CREATE POLICY one_namespace ON perdure.%I '
            'USING (namespace = current_setting(''perdure.namespace'', true))', _table
        );
    END LOOP;
END
$$;

CREATE POLICY everybody ON perdure.worker USING (true);
CREATE POLICY everybody ON perdure.cluster_count USING (true);

DO $$
BEGIN
    GRANT SELECT, INSERT, UPDATE, DELETE ON perdure.worker, perdure.cluster_count,
        perdure.work_class, perdure.lost_work TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
