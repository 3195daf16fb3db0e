"""The providers that can be started on the machine of the tests, for suites that attack each of them."""

from __future__ import annotations

import os
import sys

import pytest

from postroom.sandbox import confine
from postroom.sandbox.bubblewrap import BubblewrapProvider
from postroom.sandbox.landlock import OLDEST, LandlockProvider
from postroom.sandbox.netns import NetnsProvider
from postroom.sandbox.plain import PlainProvider

needs_landlock = pytest.mark.skipif(
    confine.version() < OLDEST, reason=f"the kernel has no Landlock of version {OLDEST}"
)
needs_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can make the network of netns"
)

BUBBLEWRAP = pytest.param(BubblewrapProvider(), id="bubblewrap")
NETNS = pytest.param(NetnsProvider(), id="netns", marks=needs_root)
LANDLOCK = pytest.param(LandlockProvider(), id="landlock", marks=needs_landlock)
NONE = pytest.param(PlainProvider(), id="none")

ENFORCED = (BUBBLEWRAP, NETNS)
WALLS = (*ENFORCED, LANDLOCK)
ALL = (*WALLS, NONE)
