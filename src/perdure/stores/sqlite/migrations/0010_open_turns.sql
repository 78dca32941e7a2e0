-- Schema 10: open turns are found without reading all sessions.

CREATE INDEX stream_open_turn ON stream (namespace) WHERE open_turn IS NOT NULL;
