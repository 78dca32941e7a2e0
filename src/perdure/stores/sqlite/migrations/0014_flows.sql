-- The flows of a namespace, for the inbox and the list of flows.

CREATE INDEX stream_flow ON stream (namespace) WHERE kind = 'flow';
