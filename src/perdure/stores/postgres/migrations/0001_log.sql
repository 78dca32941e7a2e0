-- Schema 1: the log, what is kept beside it so that reading costs what it returns, and the
-- functions that do in the server what would otherwise be several round trips.
--
-- Every key begins with the namespace; row-level security lets a session see one namespace only,
-- the one in the setting `perdure.namespace`. entry.n is the entry's position among all entries of
-- the database. A *run* is a stretch of a stream's tree entries in which each one's parent is the
-- tree entry before it; a branch is read run by run.

-- The role that programs run as when they log in as one that row-level security does not bind.
-- Roles belong to the whole server: another database may have made it a moment ago.
DO $$
BEGIN
    CREATE ROLE perdure_app NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN
    NULL;
END
$$;

CREATE TABLE perdure.schema_version (
    version    integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Where a stream stands; the one row a commit changes. leaf is an entry's id, tip the seq of the
-- stream's own newest tree entry, info session.info.SessionInfo as JSON; origin, kind and updated_at
-- are of it. until is Unix milliseconds by the clock of the server.
CREATE TABLE perdure.stream (
    namespace  text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    origin     text COLLATE "C" NOT NULL,
    head       bigint NOT NULL,
    leaf       text COLLATE "C",
    tip        bigint,
    hash       bytea NOT NULL,
    epoch      bigint NOT NULL DEFAULT 0,
    owner      text,
    until      bigint NOT NULL DEFAULT 0,
    open_turn  bigint,
    updated_at bigint NOT NULL,
    info       bytea NOT NULL,
    PRIMARY KEY (namespace, id)
) WITH (fillfactor = 70);

CREATE INDEX stream_recent ON perdure.stream (namespace, origin, updated_at, id)
    WHERE kind = 'session';

-- What is fixed when a stream is made: its header as JSON, the hash before its first commit, and,
-- for a fork, where it was forked. shared_messages is what it took over of the origin's count.
CREATE TABLE perdure.birth (
    namespace       text COLLATE "C" NOT NULL,
    stream          text COLLATE "C" NOT NULL,
    header          bytea NOT NULL,
    genesis         bytea NOT NULL,
    shared_messages bigint NOT NULL,
    origin          text COLLATE "C",
    origin_head     bigint,
    origin_leaf     text COLLATE "C",
    is_path         boolean,
    PRIMARY KEY (namespace, stream)
);

CREATE INDEX birth_origin ON perdure.birth (namespace, origin) WHERE origin IS NOT NULL;

-- run is the seq of the first entry of the entry's run; NULL for a side entry.
-- ref is the parent (tree) or what it is about (side) where that is of the same stream; far is the
-- whole id where it is not. depth counts the entries before it on its branch, messages the message
-- entries up to it. state (or state_far) names the newest entry of its branch that left something
-- to inherit. salt NULL: erased. chain, commit_at and commit_epoch stand with the last entry
-- of a commit: the stream's hash chain after it.
CREATE TABLE perdure.entry (
    namespace    text COLLATE "C" NOT NULL,
    stream       text COLLATE "C" NOT NULL,
    seq          bigint NOT NULL,
    n            bigint NOT NULL,
    at           bigint NOT NULL,
    run          bigint,
    ref          bigint,
    depth        bigint,
    messages     bigint,
    state        bigint,
    commit_at    bigint,
    commit_epoch bigint,
    v            integer NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    far          text COLLATE "C",
    state_far    text COLLATE "C",
    salt         bytea,
    digest       bytea NOT NULL,
    chain        bytea,
    body         bytea NOT NULL,
    PRIMARY KEY (namespace, stream, seq)
);

CREATE UNIQUE INDEX entry_position ON perdure.entry (namespace, n);

CREATE INDEX entry_note ON perdure.entry (namespace, stream, kind, seq)
    WHERE run IS NULL
    AND kind NOT IN ('model_called', 'model_finished', 'tool_started', 'tool_finished');

-- What a branch has inherited once it reached the entry seq of stream: ids of its newest entries of
-- three kinds. before is the state without the newest compaction, for when that was taken back.
CREATE TABLE perdure.state (
    namespace  text COLLATE "C" NOT NULL,
    stream     text COLLATE "C" NOT NULL,
    seq        bigint NOT NULL,
    compaction text COLLATE "C",
    model      text COLLATE "C",
    thinking   text COLLATE "C",
    before     text COLLATE "C",
    PRIMARY KEY (namespace, stream, seq)
);

-- name is UTF-8: PostgreSQL's text cannot hold every text.
CREATE TABLE perdure.alias (
    namespace text COLLATE "C" NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    name      bytea NOT NULL,
    seq       bigint NOT NULL,
    PRIMARY KEY (namespace, stream, name)
);

-- The commit a key stands for, the key as its SHA-256: the seq of the first entry of each write.
CREATE TABLE perdure.idempotency (
    namespace   text COLLATE "C" NOT NULL,
    key         bytea NOT NULL,
    fingerprint bytea NOT NULL,
    firsts      bigint[] NOT NULL,
    at          bigint NOT NULL,
    PRIMARY KEY (namespace, key)
);

CREATE TABLE perdure.blob (
    namespace text COLLATE "C" NOT NULL,
    digest    text COLLATE "C" NOT NULL,
    size      bigint NOT NULL,
    content   bytea NOT NULL,
    PRIMARY KEY (namespace, digest)
);

-- The part that has arrived of the answer to an open model call.
CREATE TABLE perdure.partial (
    namespace text COLLATE "C" NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    seq       bigint NOT NULL,
    content   bytea NOT NULL,
    PRIMARY KEY (namespace, stream)
);

-- Positions are drawn 256 at a time, so that those of one commit follow each other.
CREATE SEQUENCE perdure.position AS bigint START 1 INCREMENT 256 CACHE 1;

-- ------------------------------------------------------------ who sees what

DO $$
DECLARE
    _table text;
BEGIN
    FOREACH _table IN ARRAY ARRAY[
        'stream', 'birth', 'entry', 'state', 'alias', 'idempotency', 'blob', 'partial'
    ] LOOP
        EXECUTE format('ALTER TABLE perdure.%I ENABLE ROW LEVEL SECURITY', _table);
        EXECUTE format('ALTER TABLE perdure.%I FORCE ROW LEVEL SECURITY', _table);
        EXECUTE format(
            'CREATE POLICY one_namespace ON perdure.%I '
            'USING (namespace = current_setting(''perdure.namespace'', true))', _table
        );
    END LOOP;
END
$$;

-- It holds nothing of anybody's.
ALTER TABLE perdure.schema_version ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.schema_version FORCE ROW LEVEL SECURITY;
CREATE POLICY everybody ON perdure.schema_version USING (true);

-- ------------------------------------------------------------ branches

-- The runs of the branch to an entry, from its end: of each, its first entry and the last one that
-- is on the branch. Ends above the depth `_floor`.
CREATE FUNCTION perdure.runs(_namespace text, _stream text, _seq bigint, _floor bigint)
RETURNS TABLE (run_stream text, run_first bigint, run_last bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    _run bigint;
    _depth bigint;
    _before bigint;
    _far text;
BEGIN
    LOOP
        SELECT e.run, e.depth INTO _run, _depth FROM perdure.entry AS e
        WHERE e.namespace = _namespace AND e.stream = _stream AND e.seq = _seq;
        IF _run IS NULL OR _depth >= _before THEN
            RAISE EXCEPTION 'the branch through %/% is broken', _stream, _seq
                USING ERRCODE = 'data_corrupted';
        END IF;
        EXIT WHEN _depth < _floor;
        run_stream := _stream;
        run_first := _run;
        run_last := _seq;
        RETURN NEXT;
        _before := _depth;
        SELECT e.ref, e.far INTO _seq, _far FROM perdure.entry AS e
        WHERE e.namespace = _namespace AND e.stream = _stream AND e.seq = _run;
        IF _far IS NOT NULL THEN
            _stream := split_part(_far, '/', 1);
            _seq := split_part(_far, '/', 2)::bigint;
        END IF;
        EXIT WHEN _seq IS NULL;
    END LOOP;
END
$$;

-- The branch to an entry, from its end: entries of `_kind` (NULL: any) that are not above the depth
-- `_floor`, at most `_limit` (NULL: all). Reads no run that it does not need.
CREATE FUNCTION perdure.branch(
    _namespace text, _stream text, _seq bigint, _floor bigint, _kind text, _limit bigint
)
RETURNS TABLE (
    b_stream text, b_seq bigint, b_run bigint, b_ref bigint, b_far text,
    b_at bigint, b_kind text, b_v integer, b_body bytea
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    _run bigint;
    _depth bigint;
    _before bigint;
    _far text;
    _count bigint;
BEGIN
    LOOP
        EXIT WHEN _limit <= 0;
        SELECT e.run, e.depth INTO _run, _depth FROM perdure.entry AS e
        WHERE e.namespace = _namespace AND e.stream = _stream AND e.seq = _seq;
        IF _run IS NULL OR _depth >= _before THEN
            RAISE EXCEPTION 'the branch through %/% is broken', _stream, _seq
                USING ERRCODE = 'data_corrupted';
        END IF;
        EXIT WHEN _depth < _floor;
        -- Depths in a run are consecutive, so the limit stops the scan at the floor.
        RETURN QUERY
            SELECT e.stream, e.seq, e.run, e.ref, e.far, e.at, e.kind, e.v, e.body
            FROM perdure.entry AS e
            WHERE e.namespace = _namespace AND e.stream = _stream
                AND e.seq BETWEEN _run AND _seq
                AND e.run IS NOT NULL AND e.depth >= _floor
                AND (_kind IS NULL OR e.kind = _kind)
            ORDER BY e.seq DESC
            LIMIT least(_limit, _depth - _floor + 1);
        GET DIAGNOSTICS _count = ROW_COUNT;
        _limit := _limit - _count;
        _before := _depth;
        SELECT e.ref, e.far INTO _seq, _far FROM perdure.entry AS e
        WHERE e.namespace = _namespace AND e.stream = _stream AND e.seq = _run;
        IF _far IS NOT NULL THEN
            _stream := split_part(_far, '/', 1);
            _seq := split_part(_far, '/', 2)::bigint;
        END IF;
        EXIT WHEN _seq IS NULL;
    END LOOP;
END
$$;

-- The stream with its head, then its origin with the seq it is shared up to, and so on.
CREATE FUNCTION perdure.lineage(_namespace text, _stream text, _head bigint)
RETURNS TABLE (
    kin integer, kin_stream text, kin_upto bigint, kin_leaf text, kin_is_path boolean
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    _origin text;
    _origin_head bigint;
BEGIN
    kin := 0;
    LOOP
        SELECT b.origin, b.origin_head, b.origin_leaf, coalesce(b.is_path, false)
        INTO _origin, _origin_head, kin_leaf, kin_is_path FROM perdure.birth AS b
        WHERE b.namespace = _namespace AND b.stream = _stream;
        kin_stream := _stream;
        kin_upto := _head;
        RETURN NEXT;
        EXIT WHEN _origin IS NULL;
        _stream := _origin;
        _head := _origin_head;
        kin := kin + 1;
    END LOOP;
END
$$;

-- Whether a stream, with its own log up to `_head`, sees what is at `_seq` of `_sought`, if anything.
CREATE FUNCTION perdure.sees(
    _namespace text, _stream text, _head bigint, _sought text, _seq bigint
)
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    _near record;
BEGIN
    IF _stream = _sought THEN
        RETURN _seq <= _head;
    END IF;
    FOR _near IN SELECT * FROM perdure.lineage(_namespace, _stream, _head) AS l ORDER BY l.kin LOOP
        IF _near.kin_stream = _sought THEN
            RETURN _seq <= _near.kin_upto;
        END IF;
        IF _near.kin_is_path AND EXISTS (
            SELECT 1 FROM perdure.entry AS e
            WHERE e.namespace = _namespace AND e.stream = _sought AND e.seq = _seq
                AND e.run IS NOT NULL
        ) THEN
            IF _near.kin_leaf IS NULL THEN
                RETURN false;
            END IF;
            RETURN perdure.is_on_branch(
                _namespace, _sought, _seq,
                split_part(_near.kin_leaf, '/', 1), split_part(_near.kin_leaf, '/', 2)::bigint
            );
        END IF;
    END LOOP;
    RETURN false;
END
$$;

-- Whether the tree entry at `_seq` of `_sought` is on the branch to that at `_leaf` of `_stream`.
CREATE FUNCTION perdure.is_on_branch(
    _namespace text, _sought text, _seq bigint, _stream text, _leaf bigint
)
RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT true FROM perdure.runs(
            _namespace, _stream, _leaf,
            (SELECT e.depth FROM perdure.entry AS e
             WHERE e.namespace = _namespace AND e.stream = _sought AND e.seq = _seq)
        ) AS r
        WHERE r.run_stream = _sought AND _seq BETWEEN r.run_first AND r.run_last
        LIMIT 1
    ), false)
$$;

-- ------------------------------------------------------------ positions

-- Positions are drawn before their commits are seen, so a later one can be seen first. Whoever draws
-- one first takes a shared advisory lock whose key holds the newest position drawn so far (its
-- mark), and keeps it to the end of the transaction. Everything up to the lowest mark is settled.
-- Keys: 0x5065 ("Pe") in the upper 16 bits, the position in the lower 48.
CREATE FUNCTION perdure.mark() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _newest bigint;
BEGIN
    SELECT CASE WHEN p.is_called THEN p.last_value + 255 ELSE 0 END INTO _newest
    FROM perdure.position AS p;
    PERFORM pg_advisory_xact_lock_shared((20581::bigint << 48) | _newest);
END
$$;

-- The position up to which nothing can appear any more, kept in the setting `perdure.horizon` for
-- the next statement of the transaction, which sees all of it. Waits at most `_wait_ms` for
-- commits under way; the answer is whether some were left.
CREATE FUNCTION perdure.settle(_wait_ms integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    _newest bigint;
    _lowest bigint;
    _until timestamptz := clock_timestamp() + make_interval(secs => _wait_ms / 1000.0);
BEGIN
    SELECT CASE WHEN p.is_called THEN p.last_value + 255 ELSE 0 END INTO _newest
    FROM perdure.position AS p;
    LOOP
        SELECT min(((l.classid::bigint & 65535) << 32) | l.objid::bigint) INTO _lowest
        FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
            AND l.classid::bigint >> 16 = 20581
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
            AND ((l.classid::bigint & 65535) << 32) | l.objid::bigint < _newest;
        EXIT WHEN _lowest IS NULL OR clock_timestamp() >= _until;
        PERFORM pg_sleep(0.0005);
    END LOOP;
    PERFORM set_config('perdure.horizon', coalesce(_lowest, _newest)::text, true);
    RETURN _lowest IS NOT NULL;
END
$$;

-- ------------------------------------------------------------ appending

-- A new stream, as it is before its first entry.
CREATE FUNCTION perdure.create_stream(
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
    INSERT INTO perdure.birth VALUES (
        _namespace, _stream, _header, _hash, _messages, _from, _from_head,
        CASE WHEN _from IS NOT NULL THEN _leaf END, _is_path
    );
END
$$;

-- One stream's share of a commit, if the stream still stands where the writer saw it: at the hash
-- `_was` and the epoch `_was_epoch`; otherwise error PD001. A key that is taken: PD002.
-- -1 and '' mean NULL, so that the types of the parameters, and the plan, never change.
CREATE FUNCTION perdure.append(
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
BEGIN
    PERFORM set_config('perdure.namespace', _namespace, true);
    UPDATE perdure.stream AS s
    SET head = _head + _many, leaf = nullif(_leaf, ''), tip = nullif(_tip, -1), hash = _hash,
        open_turn = nullif(_open_turn, -1),
        updated_at = _updated_at, info = _info
    WHERE s.namespace = _namespace AND s.id = _stream
        AND s.hash = _was AND s.epoch = _was_epoch;
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
        PERFORM perdure.keep_key(_namespace, _key, _fingerprint, ARRAY[_head + 1], _at);
    END IF;
END
$$;

CREATE FUNCTION perdure.keep_key(
    _namespace text, _key bytea, _fingerprint bytea, _firsts bigint[], _at bigint
)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO perdure.idempotency VALUES (_namespace, _key, _fingerprint, _firsts, _at)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the key is taken' USING ERRCODE = 'PD002';
    END IF;
END
$$;

-- Unix milliseconds by the clock of the server.
CREATE FUNCTION perdure.now_ms() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- ------------------------------------------------------------ grants

-- Only what the store does: entries, births and states are never changed or removed.
DO $$
BEGIN
    GRANT USAGE ON SCHEMA perdure TO perdure_app;
    GRANT SELECT ON ALL TABLES IN SCHEMA perdure TO perdure_app;
    GRANT INSERT ON perdure.stream, perdure.birth, perdure.entry, perdure.state, perdure.alias,
        perdure.idempotency, perdure.blob, perdure.partial TO perdure_app;
    GRANT UPDATE ON perdure.stream, perdure.alias, perdure.partial TO perdure_app;
    GRANT DELETE ON perdure.partial TO perdure_app;
    GRANT USAGE, SELECT ON SEQUENCE perdure.position TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
