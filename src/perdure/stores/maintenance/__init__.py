"""Maintenance of whole stores, for every backend: copy, backup, repair, statistics."""
