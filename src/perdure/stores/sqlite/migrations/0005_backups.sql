-- Schema 5: which backups were made of the file, for the certificates of erasures.

CREATE TABLE backup (
    path TEXT PRIMARY KEY,
    at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
