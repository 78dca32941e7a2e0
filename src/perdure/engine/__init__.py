"""The engine: turns of sessions, flows of roles, hooks, summaries and telemetry."""
