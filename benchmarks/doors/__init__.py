"""The gateway under load: its process, the processes that load it, and what they do."""
