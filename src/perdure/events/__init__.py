"""Events for observers: durable ones projected from the log, and live ones."""
