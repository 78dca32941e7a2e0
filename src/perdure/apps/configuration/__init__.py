"""Commands that show and check settings, agents and MCP servers, and their sources."""
