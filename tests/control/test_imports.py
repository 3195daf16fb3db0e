"""What the start of a post room loads, which is what somebody waits for."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.requirement("package-footprint-bounded")
def test_the_start_of_a_post_room_loads_nothing_of_the_a2a_sdk():
    code = (
        "import sys, postroom.control.up, postroom.control.org\n"
        "print(sorted({'a2a', 'google.protobuf'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=40, check=True
    )

    assert done.stdout.strip() == "[]"
