"""Units by which systemd or launchd runs a post room at boot.

On a stop signal, a post room ends its workers and its nats-server itself, in order. So the manager must signal only
the post room, give it time, and only then kill the rest.
"""

from __future__ import annotations

import os
import plistlib
import sys
from collections.abc import Sequence
from pathlib import Path

NAME = "postroom"
LABEL = "io.postroom.postroom"
STOP_TIMEOUT = 90
"""Seconds from the stop signal until the manager kills the rest: many workers end at a time."""

RESTART_DELAY = 5
"""Seconds between a crash and the next start."""

HOPELESS = (2, 5)
"""Exit statuses (bad input, conflict) that a restart cannot change."""


def unit(kind: str, state: Path, arguments: Sequence[str]) -> str:
    """The unit for `systemd` or `launchd`.

    Args:
        state: the state folder, absolute.
        arguments: of `up`.
    """
    command = [*_program(), "--state", str(state), "up", *arguments]
    return _systemd(command) if kind == "systemd" else _launchd(command, state)


def _program() -> list[str]:
    """This installation's `postroom`."""
    script = Path(sys.executable).with_name(NAME)
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", NAME]


def _systemd(command: Sequence[str]) -> str:
    return f"""\
# Runs a post room at boot, as you and not as root. Save it as
#   ~/.config/systemd/user/{NAME}.service
# then
#   systemctl --user daemon-reload
#   systemctl --user enable --now {NAME}
#   loginctl enable-linger             # it runs while you are logged out, too
# What it says: journalctl --user -u {NAME}
# No variable of your shell is set there: keep settings with `postroom config set`.
[Unit]
Description=Postroom, the post room for AI agents

[Service]
Type=exec
ExecStart={" ".join(map(_quoted, command))}
Restart=on-failure
RestartSec={RESTART_DELAY}
RestartPreventExitStatus={" ".join(map(str, HOPELESS))}
# It ends its workers and nats-server itself, in order; what is left then is killed.
KillMode=mixed
TimeoutStopSec={STOP_TIMEOUT}
UMask=0077

[Install]
WantedBy=default.target
"""


def _quoted(word: str) -> str:
    """A word of a command line (systemd.service(5), Command lines): `%` and `$` stand for themselves."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _launchd(command: Sequence[str], state: Path) -> str:
    log = str(state / "logs" / "up.log")
    document = {
        "Label": LABEL,
        "ProgramArguments": list(command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_DELAY,
        "ExitTimeOut": STOP_TIMEOUT,
        "Umask": 0o077,
        "ProcessType": "Interactive",
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    head, body = plistlib.dumps(document, sort_keys=False).decode().split("<plist", 1)
    return f"""\
{head}<!--
  Runs a post room at login. Save it as
    ~/Library/LaunchAgents/{LABEL}.plist
  then
    launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/{LABEL}.plist
  (the folder of StandardOutPath has to be there), and to end it
    launchctl bootout gui/$(id -u)/{LABEL}
  No variable of your shell is set there: keep settings with `postroom config set`.
-->
<plist{body}"""
