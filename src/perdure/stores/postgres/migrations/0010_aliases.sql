-- Schema 10: an alias is found in all streams of a namespace at once.

CREATE INDEX alias_name ON perdure.alias (namespace, name);
