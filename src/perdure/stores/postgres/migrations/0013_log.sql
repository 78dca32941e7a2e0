-- Schema 13: the first that is released. Released files are never edited; a change is a new file.
--
-- Every key begins with the namespace. Row-level security shows a session one namespace only, the
-- one in the setting `perdure.namespace`. entry.n is the entry's position among all entries of the
-- database. A *run* is a sequence of tree entries of one stream in which the parent of each is the
-- tree entry before it; a branch is read run by run.

-- Programs that log in as a role that bypasses row-level security switch to this role. Roles belong
-- to the whole server: another database may have created it already.
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

-- ------------------------------------------------------------ the log

-- The current state of a stream: the one row that a commit updates. leaf is an entry id, tip the seq
-- of the stream's own newest tree entry. info is session.info.SessionInfo as JSON; origin, kind,
-- updated_at, is_active and created_at are copied from it, folder is the first half of the SHA-256
-- of the session's folder (NULL: none). is_limited: the namespace has a quota; it is in this row so
-- that an append without a quota needs no other read. Units: until is Unix milliseconds by the clock
-- of the server.
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
    is_erased  boolean NOT NULL DEFAULT false,
    is_limited boolean NOT NULL DEFAULT false,
    folder     bytea,
    is_active  boolean NOT NULL DEFAULT true,
    created_at bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, id)
) WITH (fillfactor = 70);

-- Data of a stream that never changes: its header as JSON, the hash before its first commit, and,
-- for a fork, where it was forked. shared_messages is the number of messages of the origin that
-- the fork shares. n is the position of its creation, from the same sequence as those of entries:
-- so new titles and new entries are found alike, and nothing appears below a mark (settle).
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
    n               bigint NOT NULL,
    PRIMARY KEY (namespace, stream)
);

CREATE INDEX birth_origin ON perdure.birth (namespace, origin) WHERE origin IS NOT NULL;
CREATE INDEX birth_by_position ON perdure.birth (namespace, n);

-- run is the seq of the first entry of the entry's run; NULL for a side entry.
-- ref is the parent of a tree entry, or the entry that a side entry is about, if it is in the same
-- stream; otherwise far is its full id. depth counts the entries before it on its branch, messages
-- the messages up to it. state (or state_far) is the newest entry of its branch that has a row in
-- state. salt is NULL if the entry was erased. The last entry of a commit has chain, commit_at and
-- commit_epoch: the stream's hash chain after it.
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

-- The flows of a namespace are found without reading its sessions.
CREATE INDEX entry_flow ON perdure.entry (namespace, stream, seq)
    WHERE run IS NULL AND kind IN ('flow_started', 'flow_imported', 'flow_completed');

-- What a branch inherits at the entry seq of stream: ids of its newest entries of three kinds.
-- before is the state without the newest compaction, for the time after that compaction is undone.
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

-- name is UTF-8: PostgreSQL's text cannot contain every text.
CREATE TABLE perdure.alias (
    namespace text COLLATE "C" NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    name      bytea NOT NULL,
    seq       bigint NOT NULL,
    PRIMARY KEY (namespace, stream, name)
);

-- An alias is looked up in all streams of a namespace at once.
CREATE INDEX alias_name ON perdure.alias (namespace, name);

-- The commit of an idempotency key: the SHA-256 of the key, and for each write the stream and the
-- seq of its first entry.
CREATE TABLE perdure.idempotency (
    namespace   text COLLATE "C" NOT NULL,
    key         bytea NOT NULL,
    fingerprint bytea NOT NULL,
    firsts      bigint[] NOT NULL,
    at          bigint NOT NULL,
    streams     text[],
    PRIMARY KEY (namespace, key)
);

-- n is a position, as of an entry: usage counts contents up to one.
CREATE TABLE perdure.blob (
    namespace text COLLATE "C" NOT NULL,
    digest    text COLLATE "C" NOT NULL,
    size      bigint NOT NULL,
    n         bigint NOT NULL,
    content   bytea NOT NULL,
    PRIMARY KEY (namespace, digest)
);

CREATE INDEX blob_by_position ON perdure.blob (namespace, n);

-- The part of the answer to an open model call that has arrived so far.
CREATE TABLE perdure.partial (
    namespace text COLLATE "C" NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    seq       bigint NOT NULL,
    content   bytea NOT NULL,
    PRIMARY KEY (namespace, stream)
);

-- Positions are drawn 256 at a time, so that those of one commit are consecutive.
CREATE SEQUENCE perdure.position AS bigint START 1 INCREMENT 256 CACHE 1;

-- ------------------------------------------------------------ lists

CREATE INDEX stream_recent ON perdure.stream (namespace, origin, is_active, updated_at, id)
    WHERE kind = 'session';
CREATE INDEX stream_by_folder ON perdure.stream (namespace, folder, origin, updated_at, id)
    WHERE kind = 'session' AND folder IS NOT NULL;

-- The oldest session that an age limit can remove, and the oldest idempotency keys.
CREATE INDEX stream_by_age ON perdure.stream (namespace, created_at)
    WHERE kind = 'session' AND NOT is_erased;
CREATE INDEX idempotency_by_age ON perdure.idempotency (namespace, at);

-- Open turns.
CREATE INDEX stream_open_turn ON perdure.stream (namespace) WHERE open_turn IS NOT NULL;

-- Questions that no entry of their own session closes.
CREATE TABLE perdure.open_question (
    namespace text COLLATE "C" NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    seq       bigint NOT NULL,
    PRIMARY KEY (namespace, stream, seq)
);

-- The parts of names and ids (stores/name_parts), case-folded, in UTF-8. The program computes them:
-- the server folds differently.
CREATE TABLE perdure.name_part (
    namespace text COLLATE "C" NOT NULL,
    part      bytea NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, part, stream)
);

-- ------------------------------------------------------------ erasure, retention, quotas

-- certificate is stores.retention.erase.Certificate as JSON.
CREATE TABLE perdure.erasure (
    namespace   text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    at          bigint NOT NULL,
    certificate bytea NOT NULL,
    PRIMARY KEY (namespace, id)
);

-- The retention policy of a namespace: stores.retention.policy.Retention as JSON.
CREATE TABLE perdure.retention (
    namespace text COLLATE "C" PRIMARY KEY,
    policy    bytea NOT NULL
);

-- Limits of a namespace (NULL: none), and what it contains.
CREATE TABLE perdure.quota (
    namespace    text COLLATE "C" PRIMARY KEY,
    max_sessions bigint,
    max_entries  bigint,
    max_bytes    bigint,
    sessions     bigint NOT NULL,
    entries      bigint NOT NULL,
    bytes        bigint NOT NULL
);

-- Backups of a namespace, for the certificates of erasures.
CREATE TABLE perdure.backup (
    namespace text COLLATE "C" NOT NULL,
    path      text NOT NULL,
    at        bigint NOT NULL,
    PRIMARY KEY (namespace, path)
);

-- The counts of a namespace up to a position. Some reads write them (postgres/usage). streams and
-- entries include erased ones, the others do not. Removing something from the log raises
-- generation, and the next read counts everything again.
CREATE TABLE perdure.usage (
    namespace     text COLLATE "C" PRIMARY KEY,
    generation    bigint NOT NULL DEFAULT 0,
    position      bigint NOT NULL DEFAULT 0,
    streams       bigint NOT NULL DEFAULT 0,
    sessions      bigint NOT NULL DEFAULT 0,
    flows         bigint NOT NULL DEFAULT 0,
    entries       bigint NOT NULL DEFAULT 0,
    kept          bigint NOT NULL DEFAULT 0,
    body_bytes    bigint NOT NULL DEFAULT 0,
    content_bytes bigint NOT NULL DEFAULT 0
);

-- ------------------------------------------------------------ search

-- A text that can be found. n is the position of its entry or, negative, that of the birth of the
-- stream whose first title it is. If part is 0, it is in no part yet, number is n, said is its words
-- in order (session/search/phrase_text.py), and filters are separated by spaces. Otherwise the row is
-- a block of texts of the part that follow each other (session/search/parts/blocks.py): n and number
-- (from 0) are those of the first, at is the earliest time, length the number of texts.
CREATE TABLE perdure.search (
    namespace text COLLATE "C" NOT NULL,
    n         bigint NOT NULL,
    part      bigint NOT NULL,
    number    bigint NOT NULL,
    at        bigint NOT NULL,
    length    bigint NOT NULL,
    filters   text COLLATE "C" NOT NULL,
    said      bytea NOT NULL,
    PRIMARY KEY (namespace, n)
) WITH (toast_tuple_target = 8160);

CREATE UNIQUE INDEX search_by_part ON perdure.search (namespace, part, number);

-- A part: its number of texts, the highest of their positions, the range of their times.
CREATE TABLE perdure.search_part (
    namespace text COLLATE "C" NOT NULL,
    no        bigint NOT NULL,
    size      bigint NOT NULL,
    last      bigint NOT NULL,
    first_at  bigint NOT NULL,
    last_at   bigint NOT NULL,
    PRIMARY KEY (namespace, no)
);

-- A page of a part, by its first key (session/search/parts/pages.py).
CREATE TABLE perdure.search_page (
    namespace text COLLATE "C" NOT NULL,
    part      bigint NOT NULL,
    first     text COLLATE "C" NOT NULL,
    body      bytea NOT NULL,
    PRIMARY KEY (namespace, part, first)
) WITH (toast_tuple_target = 8160);

-- Both are compact already; compression would cost every search more than it saves.
ALTER TABLE perdure.search ALTER COLUMN said SET STORAGE EXTERNAL;
ALTER TABLE perdure.search_page ALTER COLUMN body SET STORAGE EXTERNAL;

-- The index contains the log of a namespace up to position upto, by the rules of version
-- (words.VERSION). parts is the number of parts built so far, including those that were merged.
-- forgotten changes when a text is removed: what was read before must not be used any more.
CREATE TABLE perdure.search_mark (
    namespace text COLLATE "C" PRIMARY KEY,
    version   bigint NOT NULL,
    upto      bigint NOT NULL,
    parts     bigint NOT NULL,
    forgotten bigint NOT NULL DEFAULT 0
);

-- ------------------------------------------------------------ row-level security

DO $$
DECLARE
    _table text;
BEGIN
    FOREACH _table IN ARRAY ARRAY[
        'stream', 'birth', 'entry', 'state', 'alias', 'idempotency', 'blob', 'partial',
        'open_question', 'name_part', 'erasure', 'retention', 'quota', 'backup', 'usage',
        'search', 'search_part', 'search_page', 'search_mark'
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

-- It belongs to no namespace.
ALTER TABLE perdure.schema_version ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.schema_version FORCE ROW LEVEL SECURITY;
CREATE POLICY everybody ON perdure.schema_version USING (true);

-- ------------------------------------------------------------ branches

-- Return the runs of the branch to an entry, from its end: for each, its first entry and its last
-- entry on the branch. Stops above the depth `_floor`.
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

-- Return the branch to an entry, from its end: entries of `_kind` (NULL: all) at or below the depth
-- `_floor`, at most `_limit` (NULL: all). Reads only the runs that it needs.
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

-- Return the stream with its head, then its origin with the seq up to which it is shared, and so on.
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

-- Return whether a stream, with its own log up to `_head`, sees the entry at `_seq` of `_sought`.
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

-- Return whether the tree entry at `_seq` of `_sought` is on the branch to `_leaf` of `_stream`.
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

-- Positions are drawn before their commits are visible, so a later one may be visible first. The
-- first draw of a transaction takes a shared advisory lock, until the end of the transaction, whose
-- key contains the newest position drawn so far (its mark). Everything up to the lowest mark is
-- settled. Keys: 0x5065 ("Pe") in the upper 16 bits, the position in the lower 48.
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

-- Set `perdure.horizon` to the position up to which no new entry can appear, for the next statement
-- of the transaction, which sees all entries up to it. Waits at most `_wait_ms` for open commits;
-- returns whether some were still open.
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

-- Count what is added or removed if the namespace has a quota. Error PD005 with the name of the
-- exceeded limit. In an erasure, which sets `perdure.is_lifted`, nothing is rejected.
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

-- Store a content unless it is stored already; a new one counts if the namespace has a quota.
CREATE FUNCTION perdure.keep_blob(_namespace text, _digest text, _content bytea) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM perdure.mark();
    INSERT INTO perdure.blob (namespace, digest, size, n, content)
    VALUES (_namespace, _digest, octet_length(_content), nextval('perdure.position'), _content)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM perdure.count(_namespace, 0, 0, octet_length(_content));
    END IF;
END
$$;

CREATE FUNCTION perdure.keep_key(
    _namespace text, _key bytea, _fingerprint bytea, _firsts bigint[], _at bigint, _streams text[]
)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO perdure.idempotency VALUES (_namespace, _key, _fingerprint, _firsts, _at, _streams)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the key is taken' USING ERRCODE = 'PD002';
    END IF;
END
$$;

-- Create a stream without entries. Error PD004 if its origin is erased, except in a copy of a store,
-- which sets `perdure.is_copy`; PD006 if its origin does not exist. Appends to the origin are not
-- blocked.
CREATE FUNCTION perdure.create_stream(
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
    IF _is_limited AND _kind <> 'memory' THEN
        PERFORM perdure.count(_namespace, 1, 0, 0);
    END IF;
END
$$;

-- Append one stream's share of a commit if the stream still has the hash `_was` and the epoch
-- `_was_epoch`; otherwise error PD001. Error PD002 if the key is taken. -1 and '' mean NULL, so that
-- the types of the parameters, and the plan, never change. All numbers are in one array, because
-- each array argument costs several microseconds: `_numbers` has seven per entry, v, at, run, ref,
-- depth, messages, state. `_fars` and `_state_fars` are empty if all are NULL. `_ends_turn`: the turn
-- ends, so the partial answer is deleted.
CREATE FUNCTION perdure.append(
    _namespace text, _stream text, _was bytea, _was_epoch bigint,
    _head bigint, _leaf text, _tip bigint, _hash bytea, _open_turn bigint,
    _updated_at bigint, _info bytea, _at bigint, _epoch bigint, _key bytea, _fingerprint bytea,
    _ends_turn boolean, _numbers bigint[], _kinds text[], _fars text[], _state_fars text[],
    _salts bytea[], _digests bytea[], _bodies bytea[]
)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _many integer := array_length(_kinds, 1);
    _is_limited boolean;
    _newest bigint;
    _first bigint;
    _blocks bigint[];
    _set text;
BEGIN
    -- An assignment needs no query, as a PERFORM would.
    _set := set_config('perdure.namespace', _namespace, true);
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
    -- What perdure.mark() does.
    PERFORM pg_advisory_xact_lock_shared(
        (20581::bigint << 48) | CASE WHEN p.is_called THEN p.last_value + 255 ELSE 0 END
    ) FROM perdure.position AS p;
    _first := nextval('perdure.position');
    IF _many > 256 THEN
        _blocks := _first || ARRAY(
            SELECT nextval('perdure.position') FROM generate_series(1, (_many - 1) / 256)
        );
    END IF;
    INSERT INTO perdure.entry (
        namespace, stream, seq, n, at, run, ref, depth, messages, state, commit_at, commit_epoch,
        v, kind, far, state_far, salt, digest, chain, body
    )
    SELECT _namespace, _stream, _head + e.i,
        coalesce(_blocks[(e.i - 1) / 256 + 1], _first) + (e.i - 1) % 256,
        _numbers[7 * e.i - 5], nullif(_numbers[7 * e.i - 4], -1), nullif(_numbers[7 * e.i - 3], -1),
        nullif(_numbers[7 * e.i - 2], -1), nullif(_numbers[7 * e.i - 1], -1),
        nullif(_numbers[7 * e.i], -1), CASE WHEN e.i = _many THEN _at END,
        CASE WHEN e.i = _many THEN _epoch END, _numbers[7 * e.i - 6], e.kind, nullif(e.far, ''),
        nullif(e.state_far, ''), e.salt, e.digest, CASE WHEN e.i = _many THEN _hash END, e.body
    FROM unnest(_kinds, _fars, _state_fars, _salts, _digests, _bodies) WITH ORDINALITY AS e (
        kind, far, state_far, salt, digest, body, i
    );
    IF _ends_turn THEN
        DELETE FROM perdure.partial AS p WHERE p.namespace = _namespace AND p.stream = _stream;
    END IF;
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

-- Unix milliseconds by the clock of the server.
CREATE FUNCTION perdure.now_ms() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- ------------------------------------------------------------ removal

-- The role may erase a body, but not replace it.
CREATE FUNCTION perdure.only_erase() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.salt IS NOT NULL OR NEW.body <> '' THEN
        RAISE EXCEPTION 'an entry is never changed, only erased'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER only_erase BEFORE UPDATE ON perdure.entry
    FOR EACH ROW EXECUTE FUNCTION perdure.only_erase();

-- Remove a session with all its rows, for retention. Runs with the owner's rights, so that the role
-- of programs can remove nothing but a session without forks.
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

-- ------------------------------------------------------------ grants

-- Only what the store needs: births, entries and states are never changed, except by an erasure.
DO $$
BEGIN
    GRANT USAGE ON SCHEMA perdure TO perdure_app;
    GRANT SELECT ON ALL TABLES IN SCHEMA perdure TO perdure_app;
    GRANT INSERT ON perdure.stream, perdure.birth, perdure.entry, perdure.state, perdure.alias,
        perdure.idempotency, perdure.blob, perdure.partial, perdure.open_question,
        perdure.name_part, perdure.erasure, perdure.retention, perdure.quota, perdure.backup,
        perdure.usage, perdure.search, perdure.search_part, perdure.search_page,
        perdure.search_mark TO perdure_app;
    GRANT UPDATE ON perdure.stream, perdure.alias, perdure.partial, perdure.retention,
        perdure.quota, perdure.backup, perdure.usage, perdure.search_mark TO perdure_app;
    GRANT UPDATE (salt, body) ON perdure.entry TO perdure_app;
    GRANT UPDATE (header) ON perdure.birth TO perdure_app;
    GRANT DELETE ON perdure.partial, perdure.alias, perdure.idempotency, perdure.blob,
        perdure.open_question, perdure.name_part, perdure.quota, perdure.search,
        perdure.search_part, perdure.search_page TO perdure_app;
    GRANT USAGE, SELECT ON SEQUENCE perdure.position TO perdure_app;
    GRANT EXECUTE ON FUNCTION perdure.remove_stream(text) TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
