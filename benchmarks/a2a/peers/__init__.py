"""What runs in processes of its own: servers and clients of the contenders.

Nothing here imports what only the project's own environment has; `ours` alone imports Postroom.
"""
