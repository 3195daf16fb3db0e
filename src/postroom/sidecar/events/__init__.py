"""Reports what the agent does, and learns what people say to it."""
