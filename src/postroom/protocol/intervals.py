"""Seconds that depend on each other: how often one side gives a sign of life, and when the other gives it up. Pure.

tests/protocol/test_intervals.py holds their order. A timeout that nobody else depends on stays where it is used.
"""

from __future__ import annotations

DELIVERY_BEAT = 3.0
"""Between in-progress beats of a delivery that is being worked on."""

ACK_WAIT = 10.0
"""After which an unacknowledged delivery is given again."""

PRESENCE_BEAT = 5.0
"""Between two status messages of a live worker."""

PRESENCE_LIFETIME = 30.0
"""For which a status message counts; PRESENCE keeps it no longer."""

CARD_REFRESH = 20.0
"""After which the card of a live worker is written anew: two writes may fail before it is forgotten."""

CARD_LIFETIME = 60.0
"""After which the registry forgets a card that was not written anew."""

STREAM_BEAT = 15.0
"""Of silence after which the control plane sends an empty line on a stream, so that both ends notice its end."""

SOCKET_PONG = 20.0
"""For the answer to a ping on a WebSocket, which comes after `STREAM_BEAT` of silence."""

STREAM_SILENCE = 45.0
"""Without a byte after which a client gives up such a stream."""

CALL_BEAT = 10.0
"""Of silence after which a worker that answers another's call with a stream says that it is still there."""

CALL_SILENCE = 20.0
"""For an answer of another worker, and between two frames of a stream."""

LOCAL_TIMEOUT = 90.0
"""For an answer of the local API, which may wait for `limits.MAX_WAIT` before it answers."""
