"""Data types and pure functions of sessions: entries, messages, the tree, the fold, the codec.

This package is pure: it uses no clock, no disk and no event loop.
"""
