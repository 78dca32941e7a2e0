"""Commands about settings, agents, MCP servers: what counts, from where, what is wrong with it."""
