"""Full-text search in a folder of session files, with an index or by reading the files."""
