"""To be deleted."""
