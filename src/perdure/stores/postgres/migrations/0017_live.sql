-- Live events of turns that run in other processes.
--
-- The log has every answer, so these rows may be lost. The tables are unlogged: a crash of the server
-- empties them.

-- A handle that watches a stream while a turn of it runs elsewhere; without a stream: all of them.
CREATE UNLOGGED TABLE perdure.live_watch (
    namespace text COLLATE "C" NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    handle    text COLLATE "C" NOT NULL,
    until     timestamptz NOT NULL,
    PRIMARY KEY (namespace, stream, handle)
);

-- Live events of the open model call at `call`, up to the number `last`. `epoch` is that of the
-- stream's lease: a takeover raises it, and with that the rows of the dead are read no more.
CREATE UNLOGGED TABLE perdure.live_delta (
    namespace text COLLATE "C" NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    call      bigint NOT NULL,
    last      bigint NOT NULL,
    epoch     bigint NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    content   bytea NOT NULL,
    PRIMARY KEY (namespace, stream, call, last)
);

DO $$
DECLARE
    _table text;
BEGIN
    FOREACH _table IN ARRAY ARRAY['live_watch', 'live_delta'] LOOP
        EXECUTE format('ALTER TABLE perdure.%I ENABLE ROW LEVEL SECURITY', _table);
        EXECUTE format('ALTER TABLE perdure.%I FORCE ROW LEVEL SECURITY', _table);
        EXECUTE format(
            'CREATE POLICY one_namespace ON perdure.%I '
            'USING (namespace = current_setting(''perdure.namespace'', true))', _table
        );
    END LOOP;
END
$$;

DO $$
BEGIN
    GRANT SELECT, INSERT, UPDATE, DELETE ON perdure.live_watch, perdure.live_delta TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
