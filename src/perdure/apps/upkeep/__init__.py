"""``perdure store`` as far as it changes a store as a whole: its key, its schema, its size."""
