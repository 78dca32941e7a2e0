"""Sessions as files of JSON lines, in the layout and form of the agents that write them."""
