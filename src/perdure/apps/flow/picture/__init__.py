"""How a flow looks: its graph, its feeds, what waits for a person."""
