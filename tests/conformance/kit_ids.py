"""A plug-in for the pytest that runs A2A's official kit: each of its cases gets message ids of its own.

The kit makes its ids once for a run, and asks for many tasks under one `messageId`. To a server that takes a repeated
id for a repeated request those are one task, which the first case has ended.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """Begin a case with a new suffix for ids."""
    from tck.requirements import base  # ty: ignore[import-not-found]

    base._SESSION = uuid.uuid4().hex[:8]
