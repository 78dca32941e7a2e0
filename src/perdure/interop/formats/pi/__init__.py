"""pi sessions: version 1, 2 and 3 read, version 3 written."""
