"""Read transcripts of Claude Code."""
