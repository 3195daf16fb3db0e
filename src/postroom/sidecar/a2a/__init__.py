"""The worker's A2A: its agent's requests to others, others' requests to it, and the servers of both."""
