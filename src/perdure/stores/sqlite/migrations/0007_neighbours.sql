-- Schema 7: what a namespace costs does not depend on the others in the file.

-- Stretches of entries of one namespace: from position first up to that of the next span. One row is
-- added whenever an entry follows one of another namespace. Rows stay when their entries are removed.
CREATE TABLE span (
    first     INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL
) STRICT;

CREATE INDEX span_by_namespace ON span (namespace, first);

INSERT INTO span (first, namespace)
SELECT first, namespace FROM (
    SELECT c.first, s.namespace, lag(s.namespace) OVER (ORDER BY c.first) AS before
    FROM commits AS c CROSS JOIN entry AS e ON e.n = c.first CROSS JOIN stream AS s ON s.no = e.stream
)
WHERE before IS NOT namespace;

-- How many streams were removed: their watchers are woken.
ALTER TABLE removed ADD COLUMN streams INTEGER NOT NULL DEFAULT 0;

-- The streams of a namespace in the order they were made.
CREATE INDEX stream_by_namespace ON stream (namespace);

-- The index of search, one for each namespace. The next search of a namespace builds it.
DROP TABLE search_loose;
DROP TABLE search_mark;
DELETE FROM search_text;
DELETE FROM search_part;
DELETE FROM search_page;

ALTER TABLE search_part ADD COLUMN namespace INTEGER NOT NULL DEFAULT 0;

CREATE INDEX search_part_by_namespace ON search_part (namespace);

-- As in schema 6, with the namespace of the text.
CREATE TABLE search_loose (
    namespace INTEGER NOT NULL,
    n         INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    length    INTEGER NOT NULL,
    filters   TEXT NOT NULL,
    said      TEXT NOT NULL,
    PRIMARY KEY (namespace, n)
) STRICT, WITHOUT ROWID;

-- As in schema 6, one row for each namespace that was indexed.
CREATE TABLE search_mark (
    namespace INTEGER PRIMARY KEY,
    version   INTEGER NOT NULL,
    entry     INTEGER NOT NULL,
    stream    INTEGER NOT NULL,
    parts     INTEGER NOT NULL,
    forgotten INTEGER NOT NULL
) STRICT;
