"""Agent files (``*.agent.yaml``): strict reading, conversion to agents, writing, lookup by id."""
