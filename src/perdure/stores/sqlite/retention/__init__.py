"""Erasure, retention and quotas of the file."""
