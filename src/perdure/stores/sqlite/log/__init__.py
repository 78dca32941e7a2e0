"""The write-ahead log of the file: what brings it to the disk, and into the database."""
