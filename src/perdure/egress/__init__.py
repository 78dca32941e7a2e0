"""Send HTTP requests: for built-in tools, to MCP servers, and to embedding endpoints."""
