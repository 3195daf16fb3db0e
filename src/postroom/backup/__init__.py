"""Backing up the whole state folder of a post room, and restoring it into an empty one."""
