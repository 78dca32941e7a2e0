"""Data types of flows: the graph of roles, the bodies of a flow's log, and its fold. Pure."""
