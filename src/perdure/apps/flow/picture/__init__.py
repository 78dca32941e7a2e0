"""How a flow is displayed: its graph, its feeds, and what waits for people."""
