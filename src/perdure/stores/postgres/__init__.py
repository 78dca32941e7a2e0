"""The store that many processes and hosts share, in a schema of a PostgreSQL database."""
