"""What is found by the name of a session: itself, and its scratch directory."""
