"""Media in flight: bytes on their way into a log."""
