"""The demonstration: import, kill, resume, branch and search a session, and check each step."""
