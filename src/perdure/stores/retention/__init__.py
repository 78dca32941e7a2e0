"""Erasure, retention and quotas: the data that a store deletes or refuses to store."""
