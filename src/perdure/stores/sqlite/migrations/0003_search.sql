-- Full text (sqlite/search). Stands by itself: it needs nothing of the migration before it.
--
-- A row of search is a text that can be found. Its rowid is the position of the entry, or, negative,
-- the number of the stream whose first title it is. text holds its words as session.search.words
-- makes them, place what the filters ask for: namespace, stream, role and tools, each as a word. The
-- texts themselves are not kept again (content = ''), and what is deleted is overwritten at once
-- (secure-delete; contentless_delete would keep it). The words are folded already: the tokenizer
-- only has to split at spaces and punctuation, which also keeps SQLite's Unicode tables out of it.
CREATE VIRTUAL TABLE search USING fts5 (text, place, content = '', tokenize = 'ascii');

INSERT INTO search (search, rank) VALUES ('secure-delete', 1);

-- Every word of the index with where it stands: for verify.
CREATE VIRTUAL TABLE search_word USING fts5vocab ('search', 'instance');

-- When the entry was: for queries about a time.
CREATE TABLE search_time (
    n  INTEGER PRIMARY KEY,
    at INTEGER NOT NULL
) STRICT;

-- One row: the entries up to the position entry and the streams up to the number stream are
-- indexed, by the rules of version.
CREATE TABLE search_mark (
    version INTEGER NOT NULL,
    entry   INTEGER NOT NULL,
    stream  INTEGER NOT NULL
) STRICT;

INSERT INTO search_mark VALUES (0, 0, 0);
