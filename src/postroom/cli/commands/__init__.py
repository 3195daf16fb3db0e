"""One module per command; each defines `command` and imports what it needs when it runs."""
