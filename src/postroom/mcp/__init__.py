"""The post room as tools of the Model Context Protocol: what they are, what they do, and the server at `/mcp`."""
