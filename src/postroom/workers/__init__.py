"""Workers: what they are started from, their sandboxes and credentials, and how they end."""
