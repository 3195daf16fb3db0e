"""Routes of the HTTP API, one module for each kind of resource."""
