"""Blobs: content that is too large for messages, on disk by its hash, for those who were given its name."""
