"""pi's session files of version 3: the records for entries, and the entries in records."""
