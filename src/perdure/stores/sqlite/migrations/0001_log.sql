-- Schema 1: the log, and what is kept beside it so that reading costs what it returns.
--
-- Numbers stand for names: namespace.no, kind.no, stream.no. entry.n is the entry's position among
-- all entries of the file, in commit order. A *run* is a stretch of a stream's tree entries in
-- which each one's parent is the tree entry before it; a branch is read run by run.

CREATE TABLE namespace (
    no   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE kind (
    no   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- Below 32: kinds too frequent for the index entry_note. From 32 on: everything else, and every
-- kind that is met later. A number is for ever, since entries hold it.
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

-- AUTOINCREMENT: the number of an erased stream must never mean another one.
-- leaf and tip are positions: where the conversation goes on, and the stream's own newest tree
-- entry. The columns from updated_at to turns are session.info.SessionInfo.
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

CREATE INDEX stream_recent ON stream (namespace, origin, updated_at, id) WHERE kind = 'session';

-- What is fixed when a stream is made: its header as JSON, the hash before its first commit, and,
-- for a fork, where it was forked. shared_messages is what it took over of the origin's count.
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
-- ref is the parent (tree) or what it is about (side): a seq of the same stream, the whole id of an
-- entry elsewhere, or NULL. depth counts the entries before it on its branch, messages the message
-- entries up to it, state names what its branch has inherited. salt NULL: erased.
-- Not STRICT, for ref's sake.
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

-- What a branch has inherited: positions of its newest entries of three kinds. before is the state
-- without the newest compaction, for when that was taken back.
CREATE TABLE state (
    no         INTEGER PRIMARY KEY,
    compaction INTEGER,
    model      INTEGER,
    thinking   INTEGER,
    before     INTEGER
) STRICT;

-- One stream's share of a commit: count entries from position first, and the chain after them.
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

-- The commit a key stands for: the position of its first entry; the others follow it.
CREATE TABLE idempotency (
    namespace   INTEGER NOT NULL,
    key         TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    first       INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE blob (
    no        INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    digest    TEXT NOT NULL,
    size      INTEGER NOT NULL,
    content   BLOB NOT NULL,
    UNIQUE (namespace, digest)
) STRICT;

-- The part that has arrived of the answer to an open model call.
CREATE TABLE partial (
    stream  INTEGER PRIMARY KEY,
    seq     INTEGER NOT NULL,
    content BLOB NOT NULL
) STRICT;
