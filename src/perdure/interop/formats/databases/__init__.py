"""SQLite files of programs that store all their sessions in one database."""
