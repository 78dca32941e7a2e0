"""Erasure, retention and quotas: what a store deletes or refuses to store."""
