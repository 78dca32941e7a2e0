"""``perdure store`` about a store as a whole: key, schema, size, backup, repair, copy, figures."""
