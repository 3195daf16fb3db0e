"""A plug-in for the pytest that runs A2A's official kit; `tests/conformance/run.py` loads it.

KIT_OWN_IDS: each case gets message ids of its own. The kit makes its ids once for a run, and asks for many tasks under
one `messageId`; to a server that takes a repeated id for a repeated request those are one task, which the first case
has ended.

KIT_WEBHOOK_PORT: where the kit's receiver of push notifications listens. A post room sends nothing to a private place
that its operator has not opened, and a place has a port.
"""

from __future__ import annotations

import os
import uuid
from http.server import HTTPServer
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """Begin a case with a new suffix for ids."""
    if os.environ.get("KIT_OWN_IDS"):
        from tck.requirements import base  # ty: ignore[import-not-found]

        base._SESSION = uuid.uuid4().hex[:8]


def pytest_sessionstart(session: Any) -> None:
    """Choose the receiver's port."""
    from tck.webhook import server  # ty: ignore[import-not-found]

    port = int(os.environ.get("KIT_WEBHOOK_PORT", "0"))
    server.HTTPServer = lambda address, handler: HTTPServer((address[0], port), handler)
