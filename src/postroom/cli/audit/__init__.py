"""How the audit log looks on a terminal."""
