"""Workers: their templates, sandboxes and credentials, from start to end."""
