-- Schema 9: an alias is found in all streams at once.

CREATE INDEX alias_name ON alias (name);
