"""The engine: turns of sessions, flows of roles, hooks, summaries, and what telemetry is told."""
