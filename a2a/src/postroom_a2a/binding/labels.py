"""What an Agent Card calls each form of this binding (docs/binding.md, Identifiers)."""

CORE = "NATS"
"""Core NATS, JSON frames, A2A 1.0 or 0.3 by the interface's `protocolVersion`."""

DURABLE = "NATS+JS"
"""JetStream, JSON frames, A2A 1.0 or 0.3."""

CORE_BINARY = "urn:postroom:a2a:nats:1"
"""Core NATS, protobuf, A2A 1.0."""

DURABLE_BINARY = "urn:postroom:a2a:nats-js:1"
"""JetStream, protobuf, A2A 1.0."""

ALL = (CORE_BINARY, CORE, DURABLE_BINARY, DURABLE)
"""All of them, the one to prefer first."""
