"""Erasing, retention and quotas of the file."""
