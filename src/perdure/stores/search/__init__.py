"""The search service of the stores: plans a search over index rows; the rows of SQLite."""
