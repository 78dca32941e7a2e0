"""The search service of the stores: a search planned over the rows of an index; SQLite's rows."""
