-- Schema 20: upkeep of namespaces, by one worker at a time.

-- A task is done by worker, until that has ended it or is dead. begun_at is when it began last.
CREATE TABLE perdure.upkeep (
    namespace text COLLATE "C" NOT NULL,
    task      text COLLATE "C" NOT NULL,
    worker    text COLLATE "C",
    begun_at  timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (namespace, task)
);

ALTER TABLE perdure.upkeep ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.upkeep FORCE ROW LEVEL SECURITY;

CREATE POLICY one_namespace ON perdure.upkeep
    USING (namespace = current_setting('perdure.namespace', true));

DO $$
BEGIN
    GRANT SELECT, INSERT, UPDATE, DELETE ON perdure.upkeep TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
