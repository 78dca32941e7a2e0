"""The inbox: questions of sessions and flows to people, and what their answers do."""
