"""Wall 2: what isolates a worker from the machine it runs on, and from everything but its gateway."""

from __future__ import annotations
