"""``perdure mcp serve``: the sessions and the memory of a store for any MCP client."""
