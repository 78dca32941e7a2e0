"""The memory of a store: what earlier sessions said, facts, and episodes."""
