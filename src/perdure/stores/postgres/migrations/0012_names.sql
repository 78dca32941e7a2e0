-- Schema 12: a list finds the sessions that have a text in their name or id.

-- The parts of names and ids (stores/name_parts), in folded case and UTF-8. What sessions of older
-- schemas are called is added by the program, in the same transaction: the server folds another way.
CREATE TABLE perdure.name_part (
    namespace text COLLATE "C" NOT NULL,
    part      bytea NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, part, stream)
);

ALTER TABLE perdure.name_part ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.name_part FORCE ROW LEVEL SECURITY;
CREATE POLICY one_namespace ON perdure.name_part
    USING (namespace = current_setting('perdure.namespace', true));

DO $$
BEGIN
    GRANT SELECT, INSERT, DELETE ON perdure.name_part TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
