"""The HTTP client of the control plane; no server code, so that a terminal command starts fast."""
