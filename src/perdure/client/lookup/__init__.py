"""What is found by the name of a session: itself, its scratch directory; a look through a store."""
