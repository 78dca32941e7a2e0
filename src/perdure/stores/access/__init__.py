"""Handle concurrent access to a store: locks of other processes, forked children, event loops."""
