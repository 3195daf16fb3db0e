"""Puts a small control plane in the place of `postroom.control`, for tests of starting and ending one.

Python imports this module at its start when the folder is on its path. What the control plane does is in
the environment variable ROOM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import types
from dataclasses import asdict
from pathlib import Path
from typing import Any

import postroom


def run(settings: Any) -> int:
    from postroom.errors import PortTaken
    from tests.client.standin import Standin, status, worker

    (settings.state / "room.json").write_text(json.dumps(asdict(settings), default=str))
    (settings.state / "room.pid").write_text(str(os.getpid()))
    with (settings.state / "starts").open("a") as starts:
        starts.write("x")
    behaviour = os.environ["ROOM"]
    if behaviour == "fails":
        sys.stderr.write("some line of a log\n")
        raise PortTaken("the port is taken", remedy="another one")
    if behaviour == "crashes":
        raise RuntimeError("boom")
    if behaviour == "hangs":
        signal.pause()
    if behaviour == "waits":
        (settings.state / "go").read_text()  # a named pipe: until the test opens it too
    room = Standin()
    room.answer("GET /v1/status", status())
    room.answer("POST /v1/workers", worker(), 201)
    room.answer("POST /v1/shutdown", {"ending": True}, 202)
    room.announce(settings.state)
    descriptor = os.environ.pop("POSTROOM_READY_FD", "")
    if descriptor:
        os.write(int(descriptor), b"ready\n")
        os.close(int(descriptor))
    room.wait_for("POST /v1/shutdown", timeout=60)
    if behaviour == "stays":
        signal.pause()
    (settings.state / "server.json").unlink()
    room.close()
    return 0


control: Any = types.ModuleType("postroom.control")
control.run = run
# The stand-in reads the document of the API, which is inside.
control.__path__ = [str(Path(postroom.__file__).parent / "control")]
sys.modules["postroom.control"] = control
