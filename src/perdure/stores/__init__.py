"""Stores: the protocol of every backend, and the backends."""
