"""`postroom-agent`: the local API as a command, for agents that run shell commands.

Its commands are made of `protocol.verbs`. Standard library only, so that it starts at once in any sandbox. Exit codes
are those of `postroom.errors`; for the wait on a task, those of its end (`protocol.tasks.EXIT_CODES`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from postroom.agentcli import calls, files, mcp, tasks
from postroom.agentcli.commands import add_command, perform, record_of
from postroom.errors import PostroomError, exit_code
from postroom.protocol.verbs import (
    Announce,
    Find,
    ListMessages,
    ListThread,
    Post,
    Reply,
    Seen,
    Send,
    WhoAmI,
)
from postroom_a2a.text import one_line


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    own, program = files.split(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(own)
    options.program = program
    try:
        return int(options.run(options))
    except PostroomError as error:
        sys.stderr.write(f"postroom-agent: {error}\n")
        return exit_code(error)
    except BrokenPipeError:
        return 0


def _say(options: argparse.Namespace) -> int:
    _print(perform(options.action, record_of(options))["id"])
    return 0


def _list(options: argparse.Namespace) -> int:
    answer = perform(options.action, record_of(options))
    found, line = {
        Find: lambda: (answer["agents"], _agent),
        ListMessages: lambda: (answer, _message),
        ListThread: lambda: (answer["messages"], _message),
        WhoAmI: lambda: ([answer], lambda me: f"@{me['nick']} {me['uid']}"),
    }[options.action]()
    for each in found:
        _print(json.dumps(each) if options.json else line(each))
    return 0


def _message(message: dict[str, Any]) -> str:
    sender = message["from"]["nick"] or message["from"]["uid"]
    return f"{message['id']} {one_line(sender)}: {one_line(message['text'])}"


def _agent(agent: dict[str, Any]) -> str:
    card = agent["card"]
    skills = ", ".join(skill["id"] for skill in card["skills"])
    state = "online" if agent["online"] else "offline"
    return one_line(f"@{agent['nick']} {state} [{skills}] {card['description']}")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class _Command(argparse.ArgumentParser):
    """The parser of one command, whose options may stand anywhere.

    Plain argparse takes an optional argument as absent at the first option: in `send @ada --expects-reply TEXT` it
    would refuse `TEXT`.
    """

    _mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As the base class."""
        if self._mixing or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._mixing = True  # parse_known_intermixed_args calls this method
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="postroom-agent", description="Messages and tasks of this worker."
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Command
    )
    for action in (Send, Reply, Post, Announce, Seen):
        add_command(commands, action).set_defaults(run=_say)
    for action in (ListMessages, ListThread, WhoAmI, Find):
        command = add_command(commands, action)
        command.add_argument("--json", action="store_true", help="JSON, one value a line")
        command.set_defaults(run=_list)
    relay = commands.add_parser("mcp", help="the tools of MCP, for a client that starts this")
    relay.set_defaults(run=lambda _options: mcp.run())
    for part in (tasks, calls, files):
        part.add_commands(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
