"""The embedded store: one SQLite file, one writer thread per process, any number of processes."""
