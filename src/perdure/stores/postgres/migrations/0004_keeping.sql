-- Schema 4: retention and quotas (postgres/keeping).

-- How long a namespace keeps its sessions: stores.keeping.retention.Retention as JSON.
CREATE TABLE perdure.retention (
    namespace text COLLATE "C" PRIMARY KEY,
    policy    bytea NOT NULL
);

-- What a namespace may hold (NULL: any number), and what it holds.
CREATE TABLE perdure.quota (
    namespace    text COLLATE "C" PRIMARY KEY,
    max_sessions bigint,
    max_entries  bigint,
    max_bytes    bigint,
    sessions     bigint NOT NULL,
    entries      bigint NOT NULL,
    bytes        bigint NOT NULL
);

DO $$
DECLARE
    _table text;
BEGIN
    FOREACH _table IN ARRAY ARRAY['retention', 'quota'] LOOP
        EXECUTE format('ALTER TABLE perdure.%I ENABLE ROW LEVEL SECURITY', _table);
        EXECUTE format('ALTER TABLE perdure.%I FORCE ROW LEVEL SECURITY', _table);
        EXECUTE format(
            'CREATE POLICY one_namespace ON perdure.%I '
            'USING (namespace = current_setting(''perdure.namespace'', true))', _table
        );
    END LOOP;
END
$$;

-- The namespace of the stream has a quota. It stands in the row that an append changes anyway, so
-- that without a quota an append asks nothing more.
ALTER TABLE perdure.stream ADD COLUMN is_limited boolean NOT NULL DEFAULT false;

-- Count what is added, or taken away, where there is a quota; error PD005 with the name of the limit
-- that it goes over. An erasure has `perdure.is_lifted`: what it notes is never refused.
CREATE FUNCTION perdure.count(_namespace text, _sessions bigint, _entries bigint, _bytes bigint)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _over text;
BEGIN
    UPDATE perdure.quota AS q
    SET sessions = q.sessions + _sessions, entries = q.entries + _entries, bytes = q.bytes + _bytes
    WHERE q.namespace = _namespace
    RETURNING CASE
        WHEN _sessions > 0 AND q.sessions > q.max_sessions THEN 'sessions'
        WHEN _entries > 0 AND q.entries > q.max_entries THEN 'entries'
        WHEN _bytes > 0 AND q.bytes > q.max_bytes THEN 'bytes'
    END INTO _over;
    IF _over IS NOT NULL AND coalesce(current_setting('perdure.is_lifted', true), '') <> '1' THEN
        RAISE EXCEPTION '%', _over USING ERRCODE = 'PD005';
    END IF;
END
$$;

-- Keep a content, unless it is kept already; one that is new counts where there is a quota.
CREATE FUNCTION perdure.keep_blob(_namespace text, _digest text, _content bytea) RETURNS void
LANGUAGE sql AS $$
    WITH kept AS (
        INSERT INTO perdure.blob (namespace, digest, size, content)
        VALUES (_namespace, _digest, octet_length(_content), _content)
        ON CONFLICT DO NOTHING RETURNING size
    )
    SELECT perdure.count(_namespace, 0, 0, k.size) FROM kept AS k
    JOIN perdure.quota AS q ON q.namespace = _namespace
$$;

-- As in schema 3, and counted where the stream is limited.
CREATE OR REPLACE FUNCTION perdure.append(
    _namespace text, _stream text, _was bytea, _was_epoch bigint,
    _head bigint, _leaf text, _tip bigint, _hash bytea, _open_turn bigint,
    _updated_at bigint, _info bytea, _at bigint, _epoch bigint, _key bytea, _fingerprint bytea,
    _kinds text[], _vs bigint[], _ats bigint[], _runs bigint[], _refs bigint[], _fars text[],
    _depths bigint[], _counts bigint[], _states bigint[], _state_fars text[],
    _salts bytea[], _digests bytea[], _bodies bytea[]
)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _many integer := array_length(_kinds, 1);
    _blocks bigint[];
    _is_limited boolean;
BEGIN
    PERFORM set_config('perdure.namespace', _namespace, true);
    UPDATE perdure.stream AS s
    SET head = _head + _many, leaf = nullif(_leaf, ''), tip = nullif(_tip, -1), hash = _hash,
        open_turn = nullif(_open_turn, -1),
        updated_at = _updated_at, info = _info
    WHERE s.namespace = _namespace AND s.id = _stream
        AND s.hash = _was AND s.epoch = _was_epoch
    RETURNING s.is_limited INTO _is_limited;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the stream moved on' USING ERRCODE = 'PD001';
    END IF;
    PERFORM perdure.mark();
    IF _many <= 256 THEN
        _blocks := ARRAY[nextval('perdure.position')];
    ELSE
        _blocks := ARRAY(
            SELECT nextval('perdure.position') FROM generate_series(1, (_many + 255) / 256)
        );
    END IF;
    INSERT INTO perdure.entry (
        namespace, stream, seq, n, at, run, ref, depth, messages, state, commit_at, commit_epoch,
        v, kind, far, state_far, salt, digest, chain, body
    )
    SELECT _namespace, _stream, _head + e.i, _blocks[(e.i - 1) / 256 + 1] + (e.i - 1) % 256,
        e.at, nullif(e.run, -1), nullif(e.ref, -1), nullif(e.depth, -1), nullif(e.messages, -1),
        nullif(e.state, -1), CASE WHEN e.i = _many THEN _at END,
        CASE WHEN e.i = _many THEN _epoch END, e.v, e.kind, nullif(e.far, ''),
        nullif(e.state_far, ''), e.salt, e.digest, CASE WHEN e.i = _many THEN _hash END, e.body
    FROM unnest(
        _kinds, _vs, _ats, _runs, _refs, _fars, _depths, _counts, _states, _state_fars,
        _salts, _digests, _bodies
    ) WITH ORDINALITY AS e (
        kind, v, at, run, ref, far, depth, messages, state, state_far, salt, digest, body, i
    );
    IF _key <> '' THEN
        PERFORM perdure.keep_key(_namespace, _key, _fingerprint, ARRAY[_head + 1], _at, ARRAY[_stream]);
    END IF;
    IF _is_limited THEN
        PERFORM perdure.count(
            _namespace, 0,
            (SELECT count(*) FROM unnest(_salts) AS s (salt) WHERE s.salt IS NOT NULL),
            (SELECT coalesce(sum(octet_length(b.body)), 0) FROM unnest(_bodies) AS b (body))::bigint
        );
    END IF;
END
$$;

-- As in schema 3, but: counted where there is a quota; an origin may be gone, error PD006; and a
-- copy of a store, which has `perdure.is_copy`, may hold a fork of what was erased later.
CREATE OR REPLACE FUNCTION perdure.create_stream(
    _namespace text, _stream text, _kind text, _origin text, _leaf text, _hash bytea,
    _updated_at bigint, _info bytea, _header bytea, _messages bigint,
    _from text, _from_head bigint, _is_path boolean
)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _is_erased boolean;
    _is_limited boolean;
BEGIN
    PERFORM set_config('perdure.namespace', _namespace, true);
    IF _from IS NOT NULL THEN
        SELECT s.is_erased INTO _is_erased FROM perdure.stream AS s
        WHERE s.namespace = _namespace AND s.id = _from FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION '%', _from USING ERRCODE = 'PD006';
        END IF;
        IF _is_erased AND coalesce(current_setting('perdure.is_copy', true), '') <> '1' THEN
            RAISE EXCEPTION '%', _from USING ERRCODE = 'PD004';
        END IF;
    END IF;
    INSERT INTO perdure.stream (
        namespace, id, kind, origin, head, leaf, hash, updated_at, info, is_limited
    ) VALUES (
        _namespace, _stream, _kind, _origin, -1, _leaf, _hash, _updated_at, _info,
        EXISTS (SELECT FROM perdure.quota AS q WHERE q.namespace = _namespace)
    ) RETURNING is_limited INTO _is_limited;
    PERFORM perdure.mark();
    INSERT INTO perdure.birth (
        namespace, stream, header, genesis, shared_messages,
        origin, origin_head, origin_leaf, is_path, n
    ) VALUES (
        _namespace, _stream, _header, _hash, _messages, _from, _from_head,
        CASE WHEN _from IS NOT NULL THEN _leaf END, _is_path, nextval('perdure.position')
    );
    IF _is_limited THEN
        PERFORM perdure.count(_namespace, 1, 0, 0);
    END IF;
END
$$;

-- What a retention does and nothing else did before: a session goes with all its rows. With the
-- rights of the owner, so that the role of programs may take out nothing less than a session that
-- nobody forked.
CREATE FUNCTION perdure.remove_stream(_stream text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    _namespace text := current_setting('perdure.namespace', true);
BEGIN
    IF EXISTS (
        SELECT FROM perdure.birth AS b WHERE b.namespace = _namespace AND b.origin = _stream
    ) THEN
        RAISE EXCEPTION 'forks share its entries' USING ERRCODE = 'insufficient_privilege';
    END IF;
    DELETE FROM perdure.alias AS t WHERE t.namespace = _namespace AND t.stream = _stream;
    DELETE FROM perdure.state AS t WHERE t.namespace = _namespace AND t.stream = _stream;
    DELETE FROM perdure.entry AS t WHERE t.namespace = _namespace AND t.stream = _stream;
    DELETE FROM perdure.birth AS t WHERE t.namespace = _namespace AND t.stream = _stream;
    DELETE FROM perdure.stream AS t WHERE t.namespace = _namespace AND t.id = _stream;
END
$$;

REVOKE ALL ON FUNCTION perdure.remove_stream(text) FROM PUBLIC;

DO $$
BEGIN
    GRANT EXECUTE ON FUNCTION perdure.remove_stream(text) TO perdure_app;
    GRANT SELECT, INSERT, UPDATE ON perdure.retention TO perdure_app;
    GRANT SELECT, INSERT, UPDATE, DELETE ON perdure.quota TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
