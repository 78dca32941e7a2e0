"""What is done to stores as wholes, for every backend: copies, backups, repairs, figures."""
