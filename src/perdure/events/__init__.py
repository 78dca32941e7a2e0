"""Events for observers: durable events, which are computed from the log, and live events."""
