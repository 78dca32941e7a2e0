"""The display of a flow: its graph, its feeds, and its waits for people."""
