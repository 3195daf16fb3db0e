"""Frames that the server made itself."""

from __future__ import annotations

from typing import Any

import pytest
from nats.aio.msg import Msg

from postroom.bus.nats.frames import status_of


@pytest.mark.parametrize(
    "said, description",
    [("Request Timeout", "Request Timeout"), ("\r\nNats-Subject: $JS.API.X", ""), ("", "")],
)
def test_a_status_is_one_line_also_where_it_has_no_description(said: str, description: str) -> None:
    nobody: Any = None
    frame = Msg(nobody, headers={"Status": "503", "Description": said})

    assert status_of(frame) == ("503", description)
