"""The clients that can be connected: where each keeps its files, and what Postroom writes there."""
