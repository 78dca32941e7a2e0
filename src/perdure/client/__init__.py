"""The handles users hold."""
