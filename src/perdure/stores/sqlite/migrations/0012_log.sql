-- Schema 12: the first that is released. Released files are never edited; a change is a new file.

-- ------------------------------------------------------------------------------------- the log
--
-- Numbers replace names: namespace.no, kind.no, stream.no. entry.n is the entry's position among
-- all entries of the file, in commit order. A *run* is a sequence of tree entries of one stream in
-- which the parent of each is the tree entry before it; a branch is read run by run.

CREATE TABLE namespace (
    no   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE kind (
    no   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- Below 32: kinds too frequent for the index entry_note. From 32 on: all others; new kinds get the
-- next number. Entries store these numbers, so a number never changes.
INSERT INTO kind (no, name) VALUES
    (1, 'message'),
    (2, 'model_called'),
    (3, 'model_finished'),
    (4, 'tool_started'),
    (5, 'tool_finished'),
    (6, 'custom'),
    (7, 'custom_message'),
    (8, 'opaque'),
    (32, 'turn_started'),
    (33, 'turn_finished');

-- AUTOINCREMENT: the number of an erased stream is never reused.
-- leaf and tip are positions: of the conversation's end, and of the stream's own newest tree entry.
-- The columns from updated_at to turns are session.info.SessionInfo.
CREATE TABLE stream (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace  INTEGER NOT NULL,
    id         TEXT NOT NULL,
    kind       TEXT NOT NULL,
    origin     TEXT NOT NULL,
    parent     TEXT,
    created_at INTEGER NOT NULL,
    head       INTEGER NOT NULL,
    leaf       INTEGER,
    tip        INTEGER,
    hash       BLOB NOT NULL,
    epoch      INTEGER NOT NULL,
    owner      TEXT,
    until      INTEGER NOT NULL,
    open_turn  INTEGER,
    updated_at INTEGER NOT NULL,
    title      TEXT,
    first_text TEXT,
    cwd        TEXT,
    status     TEXT NOT NULL,
    messages   INTEGER NOT NULL,
    turns      INTEGER NOT NULL,
    UNIQUE (namespace, id)
) STRICT;

-- The streams of a namespace in the order of their creation.
CREATE INDEX stream_by_namespace ON stream (namespace);

-- Data of a stream that never changes: its header as JSON, the hash before its first commit, and,
-- for a fork, where it was forked. shared_messages is the number of messages of the origin that
-- the fork shares.
CREATE TABLE birth (
    stream          INTEGER PRIMARY KEY,
    header          BLOB NOT NULL,
    genesis         BLOB NOT NULL,
    shared_messages INTEGER NOT NULL,
    origin          INTEGER,
    origin_head     INTEGER,
    origin_leaf     INTEGER,
    is_path         INTEGER
) STRICT;

-- run is the seq of the first entry of the entry's run; NULL for a side entry.
-- ref is the parent of a tree entry, or the entry that a side entry is about: a seq of the same
-- stream, the full id of an entry elsewhere, or NULL. Because of ref the table is not STRICT.
-- depth counts the entries before it on its branch, messages the messages up to it; state is what
-- its branch inherits. salt is NULL if the entry was erased.
CREATE TABLE entry (
    n        INTEGER PRIMARY KEY,
    stream   INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    kind     INTEGER NOT NULL,
    v        INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    run      INTEGER,
    ref,
    depth    INTEGER,
    messages INTEGER,
    state    INTEGER,
    salt     BLOB,
    digest   BLOB NOT NULL,
    body     BLOB NOT NULL
);

CREATE UNIQUE INDEX entry_place ON entry (stream, seq);

CREATE INDEX entry_note ON entry (stream, kind, seq) WHERE kind > 31;

-- What a branch inherits: positions of its newest entries of three kinds. before is the state
-- without the newest compaction, for the time after that compaction is undone.
CREATE TABLE state (
    no         INTEGER PRIMARY KEY,
    compaction INTEGER,
    model      INTEGER,
    thinking   INTEGER,
    before     INTEGER
) STRICT;

-- One stream's share of a commit: count entries from position first, and the chain hash after them.
CREATE TABLE commits (
    first INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    hash  BLOB NOT NULL
) STRICT;

CREATE TABLE alias (
    stream INTEGER NOT NULL,
    name   TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (stream, name)
) STRICT, WITHOUT ROWID;

-- An alias is looked up in all streams at once.
CREATE INDEX alias_name ON alias (name);

-- The commit of an idempotency key: the position of its first entry; the others follow it.
CREATE TABLE idempotency (
    namespace   INTEGER NOT NULL,
    key         TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    first       INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;

-- packing: 0 uncompressed, 1 compressed by zlib. size and digest are those of the uncompressed
-- content.
CREATE TABLE blob (
    no        INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    digest    TEXT NOT NULL,
    size      INTEGER NOT NULL,
    content   BLOB NOT NULL,
    packing   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (namespace, digest)
) STRICT;

-- The part of the answer to an open model call that has arrived so far.
CREATE TABLE partial (
    stream  INTEGER PRIMARY KEY,
    seq     INTEGER NOT NULL,
    content BLOB NOT NULL
) STRICT;

-- Ranges of entries of one namespace: from position first to the next range. A row is added when an
-- entry follows one of another namespace. Rows stay when their entries are removed.
CREATE TABLE span (
    first     INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL
) STRICT;

CREATE INDEX span_by_namespace ON span (namespace, first);

-- ------------------------------------------------------------------------------------- lists

-- Lists by status, so that idle sessions are found among the active ones only, and by folder.
CREATE INDEX stream_recent ON stream (namespace, origin, status, updated_at, id)
    WHERE kind = 'session';
CREATE INDEX stream_by_folder ON stream (namespace, cwd, origin, updated_at, id)
    WHERE kind = 'session' AND cwd IS NOT NULL;

-- The oldest session that an age limit can remove, and the oldest idempotency keys.
CREATE INDEX stream_by_age ON stream (namespace, created_at)
    WHERE kind = 'session' AND status <> 'erased';
CREATE INDEX idempotency_by_age ON idempotency (namespace, at);

-- Open turns.
CREATE INDEX stream_open_turn ON stream (namespace) WHERE open_turn IS NOT NULL;

-- Questions that no entry of their own session closes.
CREATE TABLE open_question (
    namespace INTEGER NOT NULL,
    stream    INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    PRIMARY KEY (namespace, stream, seq)
) STRICT, WITHOUT ROWID;

-- The parts of names and ids (stores/name_parts), case-folded, in UTF-8. The program computes them:
-- SQLite folds ASCII only.
CREATE TABLE name_part (
    namespace INTEGER NOT NULL,
    part      BLOB NOT NULL,
    stream    INTEGER NOT NULL,
    PRIMARY KEY (namespace, part, stream)
) STRICT, WITHOUT ROWID;

-- ------------------------------------------------------------------------------------- erasure

-- One erasure. certificate is stores.retention.erase.Certificate as JSON. is_removal: retention
-- removes the sessions completely, and this row with them.
CREATE TABLE erasure (
    no          INTEGER PRIMARY KEY,
    namespace   INTEGER NOT NULL,
    id          TEXT NOT NULL,
    is_removal  INTEGER NOT NULL,
    is_done     INTEGER NOT NULL,
    certificate BLOB NOT NULL
) STRICT;

CREATE INDEX erasure_open ON erasure (no) WHERE is_done = 0;

-- The remaining work of an erasure, in the order of no: entries of a stream that lose their bodies
-- and, with is_sweep, then their rows.
CREATE TABLE erasing (
    no       INTEGER PRIMARY KEY,
    erasure  INTEGER NOT NULL,
    stream   INTEGER NOT NULL,
    first    INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    is_sweep INTEGER NOT NULL
) STRICT;

-- Contents that erased bodies referred to: removed at the end if nothing else refers to them.
CREATE TABLE erasing_content (
    erasure INTEGER NOT NULL,
    digest  TEXT NOT NULL,
    PRIMARY KEY (erasure, digest)
) STRICT, WITHOUT ROWID;

-- One row. New entries get positions above position, so that positions of removed entries are never
-- reused. streams is the number of removed streams: it wakes their watchers.
CREATE TABLE removed (
    position INTEGER NOT NULL,
    streams  INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO removed VALUES (0, 0);

-- The retention policy of a namespace: stores.retention.policy.Retention as JSON.
CREATE TABLE retention (
    namespace INTEGER PRIMARY KEY,
    policy    BLOB NOT NULL
) STRICT;

-- Backups of the file, for the certificates of erasures.
CREATE TABLE backup (
    path TEXT PRIMARY KEY,
    at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- ------------------------------------------------------------------------------------- usage

-- Limits of a namespace; NULL: none. is_lifted: this transaction belongs to an erasure.
CREATE TABLE quota (
    namespace    INTEGER PRIMARY KEY,
    max_sessions INTEGER,
    max_entries  INTEGER,
    max_bytes    INTEGER,
    is_lifted    INTEGER NOT NULL DEFAULT 0
) STRICT;

-- What a namespace contains, maintained by the triggers below. streams and entries include erased
-- ones; sessions, flows and kept do not. A stream of kind memory is neither a session nor a flow.
-- Units: body_bytes of bodies, content_bytes of contents, packed_bytes of contents as stored.
-- Entries after the position in counted are not included: a commit counts them every 64 positions,
-- so that most appends write no extra page, and every read adds them.
CREATE TABLE usage (
    namespace     INTEGER PRIMARY KEY,
    streams       INTEGER NOT NULL,
    sessions      INTEGER NOT NULL,
    flows         INTEGER NOT NULL,
    entries       INTEGER NOT NULL,
    kept          INTEGER NOT NULL,
    body_bytes    INTEGER NOT NULL,
    content_bytes INTEGER NOT NULL,
    packed_bytes  INTEGER NOT NULL
) STRICT;

CREATE TABLE counted (
    position INTEGER NOT NULL
) STRICT;

INSERT INTO counted VALUES (0);

CREATE TRIGGER usage_begun AFTER INSERT ON namespace BEGIN
    INSERT INTO usage VALUES (NEW.no, 0, 0, 0, 0, 0, 0, 0, 0);
END;

CREATE TRIGGER usage_stream_made AFTER INSERT ON stream BEGIN
    UPDATE usage SET streams = streams + 1,
        sessions = sessions + (NEW.kind = 'session' AND NEW.status <> 'erased'),
        flows = flows + (NEW.kind = 'flow' AND NEW.status <> 'erased')
    WHERE namespace = NEW.namespace;
    SELECT RAISE(ABORT, 'perdure quota sessions') FROM quota AS q CROSS JOIN usage AS u
    WHERE q.namespace = NEW.namespace AND u.namespace = q.namespace AND NOT q.is_lifted
        AND NEW.kind <> 'memory' AND u.sessions + u.flows > q.max_sessions;
END;

CREATE TRIGGER usage_stream_erased AFTER UPDATE OF status ON stream
WHEN (OLD.status = 'erased') <> (NEW.status = 'erased') BEGIN
    UPDATE usage SET
        sessions = sessions + (NEW.kind = 'session') * iif(NEW.status = 'erased', -1, 1),
        flows = flows + (NEW.kind = 'flow') * iif(NEW.status = 'erased', -1, 1)
    WHERE namespace = NEW.namespace;
END;

CREATE TRIGGER usage_stream_removed AFTER UPDATE OF namespace ON stream
WHEN OLD.namespace <> NEW.namespace BEGIN
    UPDATE usage SET streams = streams - 1,
        sessions = sessions - (NEW.kind = 'session' AND NEW.status <> 'erased'),
        flows = flows - (NEW.kind = 'flow' AND NEW.status <> 'erased'),
        (entries, kept, body_bytes) = (
            SELECT entries - count(*), kept - count(e.salt),
                body_bytes - coalesce(sum(length(e.body)), 0)
            FROM entry AS e WHERE e.stream = NEW.no AND e.n <= (SELECT position FROM counted))
    WHERE namespace = OLD.namespace;
END;

-- Entries are written before their commit. With a quota, every commit is counted.
CREATE TRIGGER usage_commit_made AFTER INSERT ON commits
WHEN NEW.first % 64 + NEW.count > 63 OR EXISTS (SELECT 1 FROM quota) BEGIN
    UPDATE usage SET entries = usage.entries + t.entries, kept = usage.kept + t.kept,
        body_bytes = usage.body_bytes + t.size
    FROM (
        SELECT s.namespace, count(*) AS entries, count(e.salt) AS kept, sum(length(e.body)) AS size
        FROM entry AS e CROSS JOIN stream AS s ON s.no = e.stream
        WHERE e.n > (SELECT position FROM counted) GROUP BY s.namespace
    ) AS t WHERE usage.namespace = t.namespace;
    UPDATE counted SET position = NEW.first + NEW.count - 1;
    SELECT RAISE(ABORT, 'perdure quota entries') FROM quota AS q CROSS JOIN usage AS u
    WHERE q.namespace = (
            SELECT s.namespace FROM entry AS e CROSS JOIN stream AS s ON s.no = e.stream
            WHERE e.n = NEW.first)
        AND u.namespace = q.namespace AND NOT q.is_lifted AND u.kept > q.max_entries;
    SELECT RAISE(ABORT, 'perdure quota bytes') FROM quota AS q CROSS JOIN usage AS u
    WHERE q.namespace = (
            SELECT s.namespace FROM entry AS e CROSS JOIN stream AS s ON s.no = e.stream
            WHERE e.n = NEW.first)
        AND u.namespace = q.namespace AND NOT q.is_lifted
        AND u.body_bytes + u.packed_bytes > q.max_bytes;
END;

CREATE TRIGGER usage_entry_erased AFTER UPDATE OF salt, body ON entry
WHEN NEW.n <= (SELECT position FROM counted) BEGIN
    UPDATE usage SET kept = kept + (NEW.salt IS NOT NULL) - (OLD.salt IS NOT NULL),
        body_bytes = body_bytes + length(NEW.body) - length(OLD.body)
    WHERE namespace = (SELECT namespace FROM stream WHERE no = NEW.stream);
END;

CREATE TRIGGER usage_content_made AFTER INSERT ON blob BEGIN
    UPDATE usage SET content_bytes = content_bytes + NEW.size,
        packed_bytes = packed_bytes + length(NEW.content)
    WHERE namespace = NEW.namespace;
    SELECT RAISE(ABORT, 'perdure quota bytes') FROM quota AS q CROSS JOIN usage AS u
    WHERE q.namespace = NEW.namespace AND u.namespace = q.namespace AND NOT q.is_lifted
        AND u.body_bytes + u.packed_bytes > q.max_bytes;
END;

CREATE TRIGGER usage_content_removed AFTER DELETE ON blob BEGIN
    UPDATE usage SET content_bytes = content_bytes - OLD.size,
        packed_bytes = packed_bytes - length(OLD.content)
    WHERE namespace = OLD.namespace;
END;

-- ------------------------------------------------------------------------------------- search

-- A text that is not in a part yet. n is the position of the entry or, negative, the number of the
-- stream whose first title it is. said is its words in order (session/search/phrase_text.py),
-- filters the values of the filters, separated by spaces.
CREATE TABLE search_loose (
    namespace INTEGER NOT NULL,
    n         INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    length    INTEGER NOT NULL,
    filters   TEXT NOT NULL,
    said      TEXT NOT NULL,
    PRIMARY KEY (namespace, n)
) STRICT, WITHOUT ROWID;

-- A block of texts of a part that follow each other (session/search/parts/blocks.py). id is part *
-- 8192 + the number of its first text in the part, from 0; n is the position of that text, at the
-- earliest time, length the number of texts.
CREATE TABLE search_text (
    id     INTEGER PRIMARY KEY,
    n      INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    length INTEGER NOT NULL,
    said   BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX search_text_by_position ON search_text (n);

-- A part: its number of texts, the highest of their positions, the range of their times.
CREATE TABLE search_part (
    no        INTEGER PRIMARY KEY,
    size      INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    first_at  INTEGER NOT NULL,
    last_at   INTEGER NOT NULL,
    namespace INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX search_part_by_namespace ON search_part (namespace);

-- A page of a part, by its first key (session/search/parts/pages.py).
CREATE TABLE search_page (
    part  INTEGER NOT NULL,
    first TEXT NOT NULL,
    body  BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX search_page_by_first ON search_page (part, first);

-- One row for each indexed namespace: the index contains the entries up to position entry and the
-- streams up to number stream, by the rules of version. parts is the number of parts built so far.
-- forgotten changes when a text is removed: what was read before must not be added any more.
CREATE TABLE search_mark (
    namespace INTEGER PRIMARY KEY,
    version   INTEGER NOT NULL,
    entry     INTEGER NOT NULL,
    stream    INTEGER NOT NULL,
    parts     INTEGER NOT NULL,
    forgotten INTEGER NOT NULL
) STRICT;
