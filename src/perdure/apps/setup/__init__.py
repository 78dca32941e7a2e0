"""``perdure init``: turns a folder into a project."""
