"""Disk access: the folder, its side files, the feed, and locks."""
