"""What the control plane does with the audit log: copies it, shows it, adds what the server sees (docs/security.md)."""
