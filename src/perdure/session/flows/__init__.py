"""Flows as values: the graph of a workflow by roles, what a flow's log says, and its fold. Pure."""
