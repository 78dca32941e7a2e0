"""The search service of the stores: it searches index rows; SQLite's tables are here, too."""
