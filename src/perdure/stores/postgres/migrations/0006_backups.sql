-- Schema 6: which backups were made of a namespace, for the certificates of erasures.

CREATE TABLE perdure.backup (
    namespace text COLLATE "C" NOT NULL,
    path      text NOT NULL,
    at        bigint NOT NULL,
    PRIMARY KEY (namespace, path)
);

ALTER TABLE perdure.backup ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.backup FORCE ROW LEVEL SECURITY;
CREATE POLICY one_namespace ON perdure.backup
    USING (namespace = current_setting('perdure.namespace', true));

DO $$
BEGIN
    GRANT SELECT, INSERT, UPDATE ON perdure.backup TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
