"""Erasure, retention, quotas and vacuum of the folder."""
