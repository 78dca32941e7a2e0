"""What the handle of a session is made of: its context, and appending to it."""
