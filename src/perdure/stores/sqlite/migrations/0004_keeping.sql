-- Schema 4: erasures and their certificates, retention, quotas.

-- One erasure. certificate is stores.keeping.erasing.Certificate as JSON. is_removal: the sessions
-- are removed whole (retention); such a row goes with them.
CREATE TABLE erasure (
    no          INTEGER PRIMARY KEY,
    namespace   INTEGER NOT NULL,
    id          TEXT NOT NULL,
    is_removal  INTEGER NOT NULL,
    is_done     INTEGER NOT NULL,
    certificate BLOB NOT NULL
) STRICT;

CREATE INDEX erasure_open ON erasure (no) WHERE is_done = 0;

-- What is left to do of it, in the order of no: entries of a stream that lose their bodies, then,
-- with is_sweep, their rows.
CREATE TABLE erasing (
    no       INTEGER PRIMARY KEY,
    erasure  INTEGER NOT NULL,
    stream   INTEGER NOT NULL,
    first    INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    is_sweep INTEGER NOT NULL
) STRICT;

-- Contents that erased bodies referred to: removed in the end, if nothing else does.
CREATE TABLE erasing_content (
    erasure INTEGER NOT NULL,
    digest  TEXT NOT NULL,
    PRIMARY KEY (erasure, digest)
) STRICT, WITHOUT ROWID;

-- One row: no entry has this position or a lower one any more, or ever will, but for those that are
-- there. Positions of removed entries are not given out again.
CREATE TABLE removed (
    position INTEGER NOT NULL
) STRICT;

INSERT INTO removed VALUES (0);

-- How long a namespace keeps its sessions: stores.keeping.retention.Retention as JSON.
CREATE TABLE retention (
    namespace INTEGER PRIMARY KEY,
    policy    BLOB NOT NULL
) STRICT;

-- What a namespace may hold (NULL: any number), and what it holds. Kept by triggers that are there
-- only while some namespace has a quota (sqlite/keeping/quotas), so that without one an append does
-- nothing for it. is_lifted: an erasure is under way, in this transaction.
CREATE TABLE quota (
    namespace    INTEGER PRIMARY KEY,
    max_sessions INTEGER,
    max_entries  INTEGER,
    max_bytes    INTEGER,
    sessions     INTEGER NOT NULL,
    entries      INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    is_lifted    INTEGER NOT NULL DEFAULT 0
) STRICT;
