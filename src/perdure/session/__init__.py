"""Sessions as values: entries, messages, tree, fold, codec.

This package is pure: it uses no clock, no disk and no event loop.
"""
