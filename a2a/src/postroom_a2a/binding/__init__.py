"""A2A on NATS: the binding (docs/binding.md). Its public names are in `postroom_a2a`."""
