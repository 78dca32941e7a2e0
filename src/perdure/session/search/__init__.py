"""The definition of full-text search for every backend: words, queries, matches, ranks. Pure."""
