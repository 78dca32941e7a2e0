"""The search service of the stores: the plan of a search over index rows, and SQLite's rows."""
