"""A2A over core NATS: calls and streams that live as long as their connection."""
