-- Schema 11: open turns are found without reading all sessions.

CREATE INDEX stream_open_turn ON perdure.stream (namespace) WHERE open_turn IS NOT NULL;
