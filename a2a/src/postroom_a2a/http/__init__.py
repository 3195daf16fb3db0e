"""A2A over HTTP: JSON-RPC and REST, A2A 1.0 and 0.3, server-sent events; plain ASGI over any `Operations`.

No SDK, no protobuf, no web framework. `A2AApplication` is an ASGI application by itself, and a server that has its own
routes hands it single requests.
"""

from __future__ import annotations

from postroom_a2a.http.application import A2AApplication
from postroom_a2a.http.cards import ServedCard
from postroom_a2a.http.exchange import Asked, ClientGone, Exchange, Front

__all__ = ["A2AApplication", "Asked", "ClientGone", "Exchange", "Front", "ServedCard"]
