"""Erasure, retention and quotas of the database."""
