"""The A2A protocol on the bus. Usable alone, with no control plane."""
