"""Blobs: content too large for a message, stored on disk by its hash, readable by those who were given its name."""
