"""The memory of a store: texts of earlier sessions, facts, and episodes."""
