"""Full text in an SQLite file: an index beside the log that follows it, and can be built anew."""
