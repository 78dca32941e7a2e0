"""The write-ahead log of the file, and its derived tables: lists, names, spans, counts."""
