"""Claude Code transcripts, read."""
