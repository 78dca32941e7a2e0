"""What a session file of each tool looks like, and what its records mean here."""
