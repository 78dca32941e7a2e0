"""The store that many processes and hosts share: a schema of a PostgreSQL database."""
