-- Schema 2: full text (postgres/search).
--
-- A stream is born at a position too, drawn like those of entries: so what is new since a mark can
-- be told of titles and entries alike, and nothing appears behind a mark (see perdure.settle).

ALTER TABLE perdure.birth ADD COLUMN n bigint;

-- The owner may be one whom row-level security binds.
ALTER TABLE perdure.birth NO FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.entry NO FORCE ROW LEVEL SECURITY;
UPDATE perdure.birth AS b SET n = coalesce(
    (SELECT e.n FROM perdure.entry AS e
     WHERE e.namespace = b.namespace AND e.stream = b.stream AND e.seq = 0),
    nextval('perdure.position')
);
ALTER TABLE perdure.birth ALTER COLUMN n SET NOT NULL;
ALTER TABLE perdure.birth FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.entry FORCE ROW LEVEL SECURITY;

CREATE INDEX birth_by_position ON perdure.birth (namespace, n);

CREATE OR REPLACE FUNCTION perdure.create_stream(
    _namespace text, _stream text, _kind text, _origin text, _leaf text, _hash bytea,
    _updated_at bigint, _info bytea, _header bytea, _messages bigint,
    _from text, _from_head bigint, _is_path boolean
)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('perdure.namespace', _namespace, true);
    INSERT INTO perdure.stream (namespace, id, kind, origin, head, leaf, hash, updated_at, info)
    VALUES (_namespace, _stream, _kind, _origin, -1, _leaf, _hash, _updated_at, _info);
    PERFORM perdure.mark();
    INSERT INTO perdure.birth (
        namespace, stream, header, genesis, shared_messages,
        origin, origin_head, origin_leaf, is_path, n
    ) VALUES (
        _namespace, _stream, _header, _hash, _messages, _from, _from_head,
        CASE WHEN _from IS NOT NULL THEN _leaf END, _is_path, nextval('perdure.position')
    );
END
$$;

-- A text that can be found. n is the position of its entry; or, negative, that of the birth of the
-- stream whose first title it is. words are the different words of session.search.words, what stands
-- for two neighbours, and words for the filters, which begin with "=" as no other does; with a space
-- between them (postgres/search/indexing.py). As a text they take half the space of a tsvector.
-- The key begins with n so that no query but one for single texts could be answered by it.
CREATE TABLE perdure.search (
    namespace text COLLATE "C" NOT NULL,
    n         bigint NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    at        bigint NOT NULL,
    words     text COLLATE "C" NOT NULL,
    PRIMARY KEY (n, namespace)
);

CREATE INDEX search_words ON perdure.search
    USING gin (array_to_tsvector(string_to_array(words, ' ')))
    WITH (fastupdate = on, gin_pending_list_limit = 512);

-- Up to where the log of a namespace is indexed, by which rules (words.VERSION), and how many texts
-- were when it came there.
CREATE TABLE perdure.search_mark (
    namespace text COLLATE "C" PRIMARY KEY,
    version   bigint NOT NULL,
    upto      bigint NOT NULL,
    texts     bigint NOT NULL
);

-- ------------------------------------------------------------ who sees what

-- The word that stands for the namespace of the session.
CREATE FUNCTION perdure.search_namespace() RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT '=n' || encode(sha256(convert_to(current_setting('perdure.namespace', true), 'UTF8')), 'hex')
$$;

-- What the session looks for, in its namespace: the setting `perdure.sought`, or everything.
--
-- The query is in the policy because under row-level security no index is used for an operator
-- that could leak (and @@ is no LEAKPROOF one) unless the policy itself asks with it.
CREATE FUNCTION perdure.sought() RETURNS tsquery
LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        quote_literal(perdure.search_namespace())::tsquery
            && nullif(current_setting('perdure.sought', true), '')::tsquery,
        quote_literal(perdure.search_namespace())::tsquery
    )
$$;

ALTER TABLE perdure.search ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.search FORCE ROW LEVEL SECURITY;
CREATE POLICY one_namespace ON perdure.search USING (
    namespace = current_setting('perdure.namespace', true)
    AND array_to_tsvector(string_to_array(words, ' ')) @@ perdure.sought()
);

ALTER TABLE perdure.search_mark ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.search_mark FORCE ROW LEVEL SECURITY;
CREATE POLICY one_namespace ON perdure.search_mark
    USING (namespace = current_setting('perdure.namespace', true));

-- The newest texts that hold what is sought, below `_below`: their entries, or the headers of the
-- streams whose titles they are. By the index of words, and then text by text, whatever the planner
-- thinks of it (n + 0 is no key): it may have planned when the tables were empty.
CREATE FUNCTION perdure.matches(
    _namespace text, _sought text, _below bigint, _since bigint, _until bigint, _limit bigint
)
RETURNS TABLE (
    m_stream text, m_seq bigint, m_run bigint, m_ref bigint, m_far text, m_at bigint, m_kind text,
    m_v integer, m_body bytea, m_n bigint, m_header bytea
)
LANGUAGE plpgsql STABLE
SET enable_bitmapscan = on SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM set_config('perdure.sought', _sought, true);
    RETURN QUERY
        WITH newest AS MATERIALIZED (
            SELECT s.n FROM perdure.search AS s
            WHERE s.n + 0 < _below AND s.at >= _since AND s.at < _until
            ORDER BY s.n + 0 DESC LIMIT _limit
        )
        SELECT e.stream, e.seq, e.run, e.ref, e.far, e.at, e.kind, e.v, e.body, m.n, b.header
        FROM newest AS m
        LEFT JOIN perdure.entry AS e ON e.namespace = _namespace AND e.n = m.n
        LEFT JOIN perdure.birth AS b ON b.namespace = _namespace AND b.n = -m.n
        ORDER BY m.n DESC;
    PERFORM set_config('perdure.sought', '', true);
END
$$;

DO $$
BEGIN
    GRANT SELECT, INSERT, DELETE ON perdure.search TO perdure_app;
    GRANT SELECT, INSERT, UPDATE ON perdure.search_mark TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
