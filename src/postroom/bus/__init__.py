"""The bus: its promises (`port`), its memory twin, the NATS implementation, the embedded server."""
