"""Alerts: what a person has to know, stored in ALERTS (`system.alerts.<own>`)."""

from __future__ import annotations

import json
import secrets

from postroom.errors import PostroomError
from postroom.observe import get_logger
from postroom.protocol import subjects
from postroom.sidecar.wire import Wire, publish_durably

_log = get_logger(__name__)


class Alerts:
    """Raises alerts of one worker; each is logged too, so that none is lost with the bus."""

    def __init__(self, wire: Wire, own: str) -> None:
        self._wire = wire
        self._subject = subjects.alerts(own)

    async def send(self, kind: str, text: str) -> None:
        """Raise an alert: `{"v": 1, "kind", "text"}`. A bus that is away does not stop the worker."""
        _log.error("alert %s: %s", kind, text)
        record = {"v": 1, "kind": kind, "text": text}
        payload = json.dumps(record).encode()
        try:
            await publish_durably(self._wire, self._subject, payload, id=secrets.token_hex(16))
        except PostroomError as error:
            _log.error("the alert could not be stored: %s", error)
