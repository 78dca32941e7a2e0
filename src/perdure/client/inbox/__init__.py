"""The inbox: the questions of sessions and flows to people, and the effects of answers."""
