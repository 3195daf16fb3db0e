"""The parts of `benchmarks.front`: the SDK's server, the client that all share, and the post room beside them."""
