"""``perdure init``: a folder becomes a project."""
