"""The right: what the agent of the chosen worker does."""
