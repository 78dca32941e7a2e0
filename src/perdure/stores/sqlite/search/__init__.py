"""The search service over one database: its log, its rows, its threads or connections."""
