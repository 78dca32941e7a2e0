"""What observers are told: durable events projected from the log, and live ones beside it."""
