"""Spans and metrics of turns, model calls and tool runs, for OpenTelemetry."""
