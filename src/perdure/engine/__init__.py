"""The engine: turns."""
