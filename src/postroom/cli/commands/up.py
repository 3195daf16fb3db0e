"""`postroom up` and `down`, and units by which systemd or launchd runs a post room at boot.

On a stop signal, a post room ends its workers and its nats-server itself, in order. So the manager must signal only
the post room, give it time, and only then kill the rest.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.declaring import number_option, parameter, takes
from postroom.cli.options import state_folder, state_option

if TYPE_CHECKING:
    from postroom.client.locate import ServerAddress
    from postroom.settings import Settings

PORT = click.IntRange(0, 65535)
FILE = click.Path(dir_okay=False)
_FIELDS = {"port": "http_port"}
"""Options whose setting has another name."""

AUTO = "auto"
UNITS = ("systemd", "launchd")


@click.command("up")
@takes(
    parameter("--port N: HTTP port; 0 means any free one.", type=PORT),
    parameter("--nats-port N: NATS port; 0 means any free one.", type=PORT),
    "--memory: Keep nothing on disk: all is gone at the end.",
    parameter(
        "--sandbox NAME: For templates that name none: auto (the default), bubblewrap, netns, landlock, seatbelt,"
        " opensandbox, none.",
        default=None,
    ),
    parameter(
        "--listen ADDR[:PORT]: Listen for other machines, too: an address, a host name, 0.0.0.0 or ::. Needs TLS.",
        default=None,
    ),
    parameter(
        "--gateway-listen ADDR[:PORT]: Let sandboxes on other machines reach the gateway there. Needs TLS.",
        default=None,
    ),
    parameter("--tls-cert FILE: Certificate (PEM) of your own.", type=FILE),
    parameter("--tls-key FILE: Its key.", type=FILE),
    parameter("--tls-ca FILE: The authority that clients trust.", type=FILE),
    "--detach -d: Return when it is ready; it runs on.",
    parameter(
        "--print-unit: Print a unit that runs it at boot, and start nothing.",
        type=click.Choice((AUTO, *UNITS)),
        is_flag=False,
        flag_value=AUTO,
        default=None,
    ),
    state_option(org=False, here=True),
)
def command(detach: bool, print_unit: str | None, **chosen: Any) -> int:
    """Run a post room until Ctrl-C, `postroom down` or SIGTERM.

    A port that is named, here or by a setting, has to be free. Where none is named the usual one is taken
    (HTTP 4280, NATS 4222), or any free one if somebody else has it. With --detach the output goes to
    logs/up.log in the state folder. Options can be kept: see `postroom config`.
    """
    given = {
        name: value for name, value in chosen.items() if value is not None and value is not False
    }
    settings = _settings(given)  # reports errors in the settings
    if print_unit is not None:
        _print_unit(print_unit, given)
        return 0
    if detach:
        _detach(_arguments(given))
        return 0
    from postroom.cli.detach import in_front
    from postroom.control import run

    with in_front(settings.state):
        return run(settings)


def _settings(given: dict[str, Any]) -> Settings:
    from postroom.settings.sources import load

    flags = {
        _FIELDS.get(name, name): str(value) for name, value in given.items() if value is not True
    }
    return load(state_folder(), flags, memory=given.get("memory", False))


def _arguments(given: dict[str, Any]) -> list[str]:
    return [
        f"--{name}" if value is True else f"--{name.replace('_', '-')}={value}"
        for name, value in given.items()
    ]


def _detach(arguments: list[str]) -> None:
    from postroom.cli.detach import start
    from postroom_a2a.text import one_line

    state = state_folder()
    click.echo(f"starting a post room on {state} ...", err=True)
    server = start(state, arguments)
    click.echo(f"post room is up at {server.url} (pid {server.pid})")
    for url in server.listen:
        click.echo(f"  for others: {one_line(url)}")
    for login in server.logins:
        click.echo(f"  log in from there: {one_line(login)}")
    for note in server.notes:
        click.echo(f"note: {one_line(note)}", err=True)


def _print_unit(kind: str, given: dict[str, Any]) -> None:
    import os
    import sys
    from pathlib import Path

    from postroom.settings.options import OPTIONS

    files = {name: Path(value).absolute() for name, value in given.items() if name[:4] == "tls_"}
    chosen = UNITS[sys.platform == "darwin"] if kind == AUTO else kind
    click.echo(unit(chosen, state_folder(), _arguments(given | files)), nl=False)
    for one in OPTIONS:
        if os.environ.get(one.variable):
            click.echo(
                f"note: {one.variable} is set in this shell and not in the unit: "
                f"postroom config set {one.key}",
                err=True,
            )


DEFAULT_TIMEOUT = 30.0


@click.command("down")
@takes(
    number_option(
        "--timeout S: Seconds to wait for its end.", click.FloatRange(0.1, 3600), DEFAULT_TIMEOUT
    ),
    state_option(org=False, here=True),
)
def down(timeout: float) -> None:
    """End the post room and all its workers, and wait until they are gone.

    Workers that were running start again with the next `postroom up`. Where none runs the exit status is 3.
    """
    from postroom.cli.detach import Process
    from postroom.client.locate import locate
    from postroom.errors import RequestTimeout

    state = state_folder()
    server = locate(state)
    with Process(
        server.pid
    ) as process:  # opened first: later the number could belong to another process
        _ask(state, server)
        if not process.wait(timeout):
            raise RequestTimeout(
                f"the post room (pid {server.pid}) has not ended within {timeout:g} s",
                remedy=f"kill {server.pid}",
            )
    click.echo(f"post room ended (pid {server.pid})")


def _ask(state: Path, server: ServerAddress) -> None:
    """Ask the post room to end by its API, else by a signal if the lock proves that the process is the post room's."""
    from postroom.client.http import Client
    from postroom.errors import PostroomError

    try:
        with Client.at(state) as client:
            client.shutdown()
    except PostroomError:
        from postroom.client.locate import runs

        if not runs(state):
            raise
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGTERM)


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
    import plistlib

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
