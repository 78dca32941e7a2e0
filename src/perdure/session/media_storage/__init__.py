"""Convert values with inline media to the form a log can store."""
