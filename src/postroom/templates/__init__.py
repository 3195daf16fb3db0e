"""Templates that Postroom brings, where their programs are on this machine, and what is missing."""
