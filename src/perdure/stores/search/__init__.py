"""The search service of the stores: plans a search over the rows of an index; SQLite's rows."""
