-- Schema 11: a list finds the sessions that have a text in their name or id.

-- The parts of names and ids (stores/name_parts), in folded case and UTF-8. What sessions of older
-- schemas are called is added by the program, in the same transaction: SQLite folds ASCII only.
CREATE TABLE name_part (
    namespace INTEGER NOT NULL,
    part      BLOB NOT NULL,
    stream    INTEGER NOT NULL,
    PRIMARY KEY (namespace, part, stream)
) STRICT, WITHOUT ROWID;
