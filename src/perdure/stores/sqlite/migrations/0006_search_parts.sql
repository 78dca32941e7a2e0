-- The index of search in parts (session/search/parts) instead of FTS5. The next search builds it.
--
-- Texts come in loose and leave as a part: so the words of a text are in one of two tables.

DROP TABLE search_word;
DROP TABLE search;
DROP TABLE search_time;
DROP TABLE search_mark;

-- A text that is in no part yet. n is the position of the entry, or, negative, the number of the
-- stream whose first title it is; said are its words in order (session/search/phrase_text.py), filters
-- what the filters ask for, with a space between them.
CREATE TABLE search_loose (
    n       INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    length  INTEGER NOT NULL,
    filters TEXT NOT NULL,
    said    TEXT NOT NULL
) STRICT;

-- A text of a part. id is part * 8192 + its number in the part, from 0; said the codes of its words.
CREATE TABLE search_text (
    id     INTEGER PRIMARY KEY,
    n      INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    length INTEGER NOT NULL,
    said   BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX search_text_by_position ON search_text (n);

-- A part: how many texts it has, the highest of their positions, when they are from.
CREATE TABLE search_part (
    no       INTEGER PRIMARY KEY,
    size     INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at  INTEGER NOT NULL
) STRICT;

-- A page of a part, by the first of its keys (session/search/parts/pages.py).
CREATE TABLE search_page (
    part  INTEGER NOT NULL,
    first TEXT NOT NULL,
    body  BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX search_page_by_first ON search_page (part, first);

-- One row: the entries up to the position entry and the streams up to the number stream are indexed,
-- by the rules of version. parts were built so far. forgotten changes whenever something is taken
-- out: what was read before then must not be put in any more.
CREATE TABLE search_mark (
    version   INTEGER NOT NULL,
    entry     INTEGER NOT NULL,
    stream    INTEGER NOT NULL,
    parts     INTEGER NOT NULL,
    forgotten INTEGER NOT NULL
) STRICT;

INSERT INTO search_mark VALUES (0, 0, 0, 0, 0);
