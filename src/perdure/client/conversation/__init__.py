"""What the handle of a session is made of: its context, appending to it, its agent, its hooks."""
