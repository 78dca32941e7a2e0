"""Full-text search as defined for every backend: words, queries, matches, ranks. Pure."""
