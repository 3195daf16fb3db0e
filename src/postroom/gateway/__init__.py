"""Wall 1: the only thing a sandbox can reach."""
