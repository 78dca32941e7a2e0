"""Convert values with inline media to the form that a log can store."""
