"""``perdure memory``: facts, episodes and their index."""
