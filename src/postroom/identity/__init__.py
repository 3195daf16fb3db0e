"""The identities of the bus: keys, credentials, the chain of trust, bearer tokens (docs/architecture.md)."""
