"""What every test gets: the event loop's kind, and how far hypothesis looks."""

from __future__ import annotations

import os

import hypothesis
import pytest

# Two shared cores make single examples slow now and then; the time limit of each test still holds.
# `quick` takes the same examples each time, so a red run is never bad luck; HYPOTHESIS_PROFILE=nightly looks further.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """nats-py runs on asyncio only, so all async tests do."""
    return "asyncio"
