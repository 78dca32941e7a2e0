"""Operator's session files of version 3: convert entries to records, and records to entries."""
