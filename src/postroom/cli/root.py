"""The command `postroom`: global options, the list of commands, and how a run ends."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from postroom import inherited
from postroom.cli.options import org_option, screen_options, state_option
from postroom.errors import EnvironmentFault, PostroomError, UnknownRecipient, exit_code


class LazyGroup(click.Group):
    """Commands by name. `package` has a module of each name with an attribute `command`.

    Args:
        shared: commands that are in another one's module, as attributes of their names.
        summaries: for each command its line in the help; the order is that of the help.
        groups: headings of the help, each by the first command below it.
        other_names: further names of commands, which no list has.
    """

    def __init__(
        self,
        *,
        package: str,
        shared: Mapping[str, str],
        summaries: Mapping[str, str],
        groups: Mapping[str, str],
        other_names: Mapping[str, str],
        **attributes: Any,
    ) -> None:
        super().__init__(**attributes)
        self._package = package
        self._shared = shared
        self._summaries = summaries
        self._groups = groups
        self._other_names = other_names

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """The names, in the order of the help."""
        return list(self._summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command of that name."""
        name = self._other_names.get(cmd_name, cmd_name)
        if name not in self._summaries:
            return None
        module = import_module(f"{self._package}.{self._shared.get(name, name)}")
        return getattr(module, name if name in self._shared else "command")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command; for an unknown name, an error with the most similar one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from postroom.protocol.similar import did_you_mean

            meant = did_you_mean(args[0], self._summaries, form=repr)
            if not meant:
                raise
            raise click.UsageError(f"{error.message} {meant.capitalize()}", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands in its groups, without importing any."""
        width = max(map(len, self._summaries))
        rows: list[tuple[str, str]] = []
        heading = ""
        for name, summary in self._summaries.items():
            if name in self._groups:
                _write_group(formatter, heading, rows)
                heading, rows = self._groups[name], []
            rows.append((name.ljust(width), summary))
        _write_group(formatter, heading, rows)


def _write_group(formatter: click.HelpFormatter, heading: str, rows: list[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(heading):
            formatter.write_dl(rows)


SUMMARIES = {
    "up": "Run a post room, in the foreground or detached.",
    "down": "End the post room and all its workers.",
    "status": "Show what needs you, and what each worker does.",
    "watch": "Show everything that happens, as it happens.",
    "doctor": "Say what is missing on this machine, and what mends it.",
    "help": "Show the help of a command.",
    "version": "Print the version.",
    "spawn": "Start a worker from a template.",
    "templates": "List and show the templates of coding agents.",
    "attach": "Show what the agent of a worker does, and answer it; or get a shell there.",
    "diff": "Show what a worker changed in the folder that it works on.",
    "logs": "Show or follow what a worker printed.",
    "stop": "Stop workers; their inboxes keep what comes.",
    "restart": "Stop workers and start them with their templates as they are now.",
    "interrupt": "End the turn of a worker's agent.",
    "revoke": "Cancel a worker's credentials and disconnect it at once.",
    "remove": "Stop workers for good; their nicks are free again.",
    "prune": "Delete what you do not keep, and what removed workers have left.",
    "tidy": "Delete the merged branches and the folders of removed workers.",
    "approvals": "Show what agents ask before they act, and who decided what.",
    "approve": "Allow what an agent asks, as it is or edited.",
    "deny": "Refuse what an agent asks.",
    "policy": "Show and change what an agent may do without asking you.",
    "autonomy": "Show and set how much an agent does without asking you.",
    "pin": "Have your decisions demand a PIN.",
    "alerts": "Show what went wrong, and clear what you have seen.",
    "delegate": "Give an agent a task and, if asked, wait for its result.",
    "task": "List, watch, answer, cancel and retry tasks.",
    "send": "Send a message and, if asked, wait for its receipt or answer.",
    "receipt": "Show how far a message has come, or wait for it.",
    "inbox": "Show the messages to you.",
    "feeds": "List the feeds of projects, with what you have not read.",
    "threads": "List your threads, the newest first.",
    "thread": "Show the messages of a thread.",
    "search": "Find messages by words, thread or agent.",
    "chat": "Talk in a project or with one agent, line by line.",
    "announce": "Announce something to everybody.",
    "outbox": "Show or follow what an agent has announced.",
    "blob": "Store and fetch content that is too large for a message.",
    "deadletters": "Messages that could not be delivered: show, send again, drop.",
    "agents": "List who has an address; add agents that Postroom does not run.",
    "people": "Add, list and remove people.",
    "grants": "Let others reach you or your agents, and ask to be let in.",
    "keys": "Make, list, replace and end keys.",
    "invite": "Invite agents of others, or people: a link and a code.",
    "join": "Join the post room of an invite, and keep the key.",
    "login": "Keep a key for the post room of another machine, and use it from now on.",
    "logout": "Forget that key.",
    "connect": "Give the sessions of coding agents in your own terminals an address.",
    "disconnect": "Take out what `connect` has written.",
    "org": "Make, list and remove organisations.",
    "a2a": "Call any A2A server: its card, its tasks.",
    "mcp": "Be the MCP server of a session in your terminal; its client runs this.",
    "webhooks": "Have URLs told what happens to you; show what verifies it.",
    "credential": "Keep keys that workers use without ever seeing them.",
    "audit": "Show what passed the gateway, and what it refused.",
    "config": "Show and change settings.",
    "tls": "Make, renew and show certificates.",
    "nats": "Run on a NATS of your own.",
    "backup": "Write the whole post room into a file, while it runs.",
    "restore": "Restore a backup into an empty state folder.",
    "admin": "Check a post room, and repair one that is down.",
}

SHARED = {
    "admin": "backup",
    "alerts": "watch",
    "approve": "approvals",
    "autonomy": "policy",
    "deny": "approvals",
    "disconnect": "connect",
    "down": "up",
    "feeds": "inbox",
    "interrupt": "workers",
    "join": "invite",
    "logout": "login",
    "outbox": "announce",
    "people": "keys",
    "pin": "policy",
    "receipt": "send",
    "remove": "workers",
    "restart": "workers",
    "restore": "backup",
    "revoke": "workers",
    "search": "inbox",
    "stop": "workers",
    "thread": "inbox",
    "threads": "inbox",
    "tidy": "prune",
    "version": "help",
}
"""Commands that share a module with what they are about, and its name."""

GROUPS = {
    "up": "The post room",
    "spawn": "Workers",
    "approvals": "What needs you",
    "delegate": "Tasks and messages",
    "agents": "Agents, people and other machines",
    "credential": "What passes the walls",
    "config": "Settings and upkeep",
}
"""Headings of the help, each above the command that its group begins with."""

OTHER_NAMES = {"ps": "status", "ls": "agents"}
"""What people type out of habit, and the command that it is."""

EPILOG = """In a terminal `postroom` alone starts a post room if none runs, and opens a screen of all that happens;
chat, attach, approvals and watch open it, too. Elsewhere, and with --no-tui, there are lines.

`postroom ps` is `status`, `ls` is `agents`.

\b
Exit status:
   0  success                        8  the other side failed, or is away
   1  any other error                9  no answer in time
   2  wrong usage or invalid input  10  something on this machine
   3  no post room is running       11  the task failed
   4  not found                     12  the task was canceled
   5  conflict with what exists     13  the task was rejected
   6  not permitted                130  interrupted (Ctrl-C)
   7  refused, or the message is dead

\b
Which post room: --url or --state, else POSTROOM_URL, else POSTROOM_STATE,
else the default of `postroom login`, else the one of this user on this
machine.

\b
Completion for your shell (bash, zsh or fish), e.g. in ~/.bashrc:
  eval "$(_POSTROOM_COMPLETE=bash_source postroom)"

NO_COLOR and a pipe turn colours off.
"""

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 + SIGINT, as shells report it."""

PIPE_CLOSED = 141
"""Exit status when nobody reads our output any more: 128 + SIGPIPE."""


class PipeClosedError(Exception):
    """The reader of our output has gone."""


class Root(LazyGroup):
    """The top command. A closed pipe leaves it as its own type, before click makes it an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command and write out what it printed."""
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
            return result
        except UnknownRecipient as error:
            from postroom.cli.completion import name_nearest

            name_nearest(error)
            raise
        except BrokenPipeError as error:
            raise PipeClosedError from error
        except OSError as error:
            if error.errno != errno.ENOSPC or error.filename is not None:
                raise
            _discard_output()
            raise EnvironmentFault("there is no room for the output") from error


def _configure(ctx: click.Context, **_: object) -> int | None:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        ctx.color = False
    if ctx.invoked_subcommand is not None:
        return None
    from postroom.cli.screen import open_alone

    return open_alone()


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from postroom.build import version

        click.echo(f"postroom {version()}")
        ctx.exit()


root = Root(
    package="postroom.cli.commands",
    shared=SHARED,
    summaries=SUMMARIES,
    groups=GROUPS,
    other_names=OTHER_NAMES,
    name="postroom",
    callback=click.pass_context(_configure),
    invoke_without_command=True,
    help="The post room for AI agents: durable addresses, receipts that cannot lie.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _option in (
    click.option(
        "-V",
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_version,
        help="Show the version, with its commit where that is known, and exit.",
    ),
    org_option(envvar="POSTROOM_ORG"),
    state_option(envvar="POSTROOM_STATE", urlvar="POSTROOM_URL", org=False),
    screen_options,
):
    root = _option(root)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status (see `EPILOG`)."""
    inherited.settle()
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # such as a Greek name on a Latin terminal
    try:
        result = root.main(args=arguments, prog_name="postroom", standalone_mode=False)
    except PostroomError as error:
        from postroom.cli.output import report

        report(error)
        return exit_code(error)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except PipeClosedError:
        _discard_output()
        return PIPE_CLOSED
    return result if isinstance(result, int) else 0


def _discard_output() -> None:
    """Discard the output: the interpreter would flush it at its end, fail again and report that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
