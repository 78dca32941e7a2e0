"""The memory of a store, which consists of texts of earlier sessions, facts, and episodes."""
