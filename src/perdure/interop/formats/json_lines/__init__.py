"""Session files with one record per line, in formats that need one module each."""
