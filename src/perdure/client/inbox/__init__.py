"""The inbox: what sessions and flows ask people, and what an answer does."""
