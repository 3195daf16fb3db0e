"""The audit log: what passed the walls, or was refused, in append-only files (docs/security.md, The audit log)."""

from postroom.audit.log import AuditLog, Trouble

__all__ = ["AuditLog", "Trouble"]
