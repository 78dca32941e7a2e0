"""``perdure store`` commands for a whole store: key, schema, statistics, backup, repair, copy."""
