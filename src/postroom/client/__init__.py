"""The HTTP client of the control plane; no server code, so that a terminal command starts fast."""

from postroom_a2a.retry import RetryPolicy

__all__ = ["RetryPolicy"]
