"""Commands that show and check settings, agents and MCP servers, with the source of each."""
