"""How tasks are shown and followed."""
