"""What full-text search means for every backend: words, queries, matches, ranks. Pure."""
