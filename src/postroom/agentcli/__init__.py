"""The `postroom-agent` command: the local API as a program for agents that run shell commands."""
