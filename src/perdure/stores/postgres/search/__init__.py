"""The search index over one database: its log, its rows, its threads or connections."""
