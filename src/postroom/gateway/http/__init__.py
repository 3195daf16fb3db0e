"""HTTP through a worker's door: the control plane's API, and the outside."""
