"""The middle: the feed of a project, or the conversation with an agent."""
