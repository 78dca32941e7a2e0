"""The engine: session turns, flows of roles, hooks, summaries and telemetry."""
