"""The parts of `postroom chat`; imported only when it runs."""
