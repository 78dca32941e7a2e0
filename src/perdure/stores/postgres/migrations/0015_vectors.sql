-- Vectors of texts, for recall by meaning.

-- A model of vectors in a namespace. Texts up to position upto have a vector of it, or need none.
CREATE TABLE perdure.search_model (
    namespace text COLLATE "C" NOT NULL,
    no        bigint NOT NULL,
    name      text COLLATE "C" NOT NULL,
    dimension bigint NOT NULL,
    upto      bigint NOT NULL,
    PRIMARY KEY (namespace, no)
);

CREATE UNIQUE INDEX search_model_by_name ON perdure.search_model (namespace, name, dimension);

-- A vector: n is the position of its text, body a signed byte for each of its numbers. Where the
-- extension pgvector is installed, body is a vector of these numbers instead.
CREATE TABLE perdure.search_vector (
    namespace text COLLATE "C" NOT NULL,
    model     bigint NOT NULL,
    n         bigint NOT NULL,
    body      bytea NOT NULL,
    PRIMARY KEY (namespace, model, n)
) WITH (toast_tuple_target = 8160);

ALTER TABLE perdure.search_vector ALTER COLUMN body SET STORAGE EXTERNAL;

DO $$
DECLARE
    _type regtype;
    _table text;
BEGIN
    SELECT t.oid::regtype INTO _type
    FROM pg_extension AS x JOIN pg_type AS t
        ON t.typnamespace = x.extnamespace AND t.typname = 'vector'
    WHERE x.extname = 'vector';
    IF _type IS NOT NULL THEN
        ALTER TABLE perdure.search_vector DROP COLUMN body;
        EXECUTE format('ALTER TABLE perdure.search_vector ADD COLUMN body %s NOT NULL', _type);
        ALTER TABLE perdure.search_vector ALTER COLUMN body SET STORAGE EXTERNAL;
    END IF;
    FOREACH _table IN ARRAY ARRAY['search_model', 'search_vector'] LOOP
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
    GRANT SELECT, INSERT, DELETE ON perdure.search_model, perdure.search_vector TO perdure_app;
    GRANT UPDATE ON perdure.search_model TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
