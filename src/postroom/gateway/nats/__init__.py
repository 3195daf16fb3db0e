"""The NATS protocol at a worker's door: read on both sides, checked, recorded, passed on."""
