"""A2A over HTTP: every agent of an organisation below `/a2a/<uid or nick>/` (docs/a2a.md)."""
