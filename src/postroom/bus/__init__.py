"""The bus: what it promises (`port`), its memory twin, the NATS implementation, the embedded server."""
