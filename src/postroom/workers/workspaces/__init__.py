"""The folder that a worker works on: a branch of its own, a copy, or the folder itself.

docs/architecture.md, Workspaces.
"""
