"""What the start of a post room loads, which is what somebody waits for."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.requirement("package-footprint-bounded")
@pytest.mark.requirement("mcp-tools-short")
def test_the_start_of_a_post_room_loads_neither_the_a2a_sdk_nor_that_of_mcp():
    absent = {"a2a", "google.protobuf", "mcp", "mcp_types", "jsonschema", "postroom.mcp.server"}
    code = (
        "import sys, postroom.control.up, postroom.control.org\n"
        f"print(sorted({absent} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=40, check=True
    )

    assert done.stdout.strip() == "[]"
