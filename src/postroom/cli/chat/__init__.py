"""The parts of `postroom chat` and `attach`; imported only when they run."""
