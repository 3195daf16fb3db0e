"""Our binding, over core NATS and over JetStream, with the frames as JSON or binary."""

from __future__ import annotations
