"""Resolve paths from a model inside a jail: directories that the paths cannot leave."""
