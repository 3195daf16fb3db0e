"""`postroom-agent`: the local API as a command, for agents that run shell commands.

Standard library only, so that it starts at once in any sandbox. Exit codes are those of
`postroom.errors`; who waits for a task learns by the code how it ended (`protocol.tasks.EXIT_CODES`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from postroom.agentcli import blobs as agentblobs
from postroom.agentcli import calls as agentcalls
from postroom.agentcli import tasks as agenttasks
from postroom.agentcli import workspace as agentwork
from postroom.agentcli.local_client import call
from postroom.agentcli.tasks import text_of
from postroom.errors import PostroomError, exit_code
from postroom_a2a.text import one_line


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    own, program = agentwork.split(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(own)
    options.program = program
    try:
        return _run(options)
    except PostroomError as error:
        sys.stderr.write(f"postroom-agent: {error}\n")
        return exit_code(error)
    except BrokenPipeError:
        return 0


def _run(options: argparse.Namespace) -> int:
    match options.command:
        case "send":
            body = {"to": options.to, "expects_reply": options.expects_reply}
            body |= {"expires_in": options.expires_in, "key": options.key}
            _print(call("POST", "/v1/send", body | {"text": text_of(options.text)})["id"])
        case "reply":
            body = {"to": options.id, "key": options.key, "text": text_of(options.text)}
            _print(call("POST", "/v1/reply", body)["id"])
        case "post":
            body = {"project": options.project, "key": options.key, "text": text_of(options.text)}
            _print(call("POST", "/v1/post", body)["id"])
        case "seen":
            _print(call("POST", "/v1/seen", {"id": options.id})["id"])
        case "whoami":
            me = call("GET", "/v1/whoami")
            _print(json.dumps(me) if options.json else f"@{me['nick']} {me['uid']}")
        case "agents":
            query = urlencode({"skill": options.skill}) if options.skill else ""
            for agent in call("GET", f"/v1/agents?{query}")["agents"]:
                _print(json.dumps(agent) if options.json else _found(agent))
        case "inbox":
            for message in call("GET", "/v1/inbox"):
                _print(json.dumps(message) if options.json else _line(message))
        case "call":
            return agentcalls.run(options)
        case "blob":
            return agentblobs.run(options)
        case "run" | "file":
            return agentwork.run(options)
        case _:
            return agenttasks.run(options)
    return 0


def _line(message: dict[str, Any]) -> str:
    sender = message["from"]["nick"] or message["from"]["uid"]
    return f"{message['id']} {one_line(sender)}: {one_line(message['text'])}"


def _found(agent: dict[str, Any]) -> str:
    card = agent["card"]
    skills = ", ".join(skill["id"] for skill in card["skills"])
    state = "online" if agent["online"] else "offline"
    return one_line(f"@{agent['nick']} {state} [{skills}] {card['description']}")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class _Command(argparse.ArgumentParser):
    """The parser of one command, whose options may stand anywhere.

    By itself argparse takes an optional argument as absent at the first option: `send @ada --expects-reply TEXT` would
    have a word too many.
    """

    _mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As of the base class."""
        if self._mixing or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._mixing = True  # the intermixed way comes back here
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

    send = commands.add_parser("send", help="send a message; prints its id")
    send.add_argument("to", help="@nick or uid")
    _add_text(send)
    send.add_argument("--expects-reply", action="store_true", help="the message wants an answer")
    send.add_argument("--expires-in", type=float, default=0, metavar="SECONDS", help="0: never")

    reply = commands.add_parser("reply", help="answer a message and confirm it; prints the id")
    reply.add_argument("id", help="id of the message to answer")
    _add_text(reply)

    post = commands.add_parser("post", help="post to the project's feed; prints the id")
    _add_text(post)
    post.add_argument("--project", default="", help="another project of this worker")

    seen = commands.add_parser("seen", help="confirm a message")
    seen.add_argument("id", help="id of the message")

    for name, words in (("inbox", "messages that are not confirmed"), ("whoami", "who I am")):
        reading = commands.add_parser(name, help=words)
        reading.add_argument("--json", action="store_true", help="JSON, one value a line")
    agents = commands.add_parser("agents", help="who is there, and what they can do")
    agents.add_argument("--skill", default="", help="only agents that have it")
    agents.add_argument("--json", action="store_true", help="JSON, one value a line")
    agenttasks.add_commands(commands)
    agentcalls.add_command(commands)
    agentblobs.add_commands(commands)
    agentwork.add_commands(commands)
    return parser


def _add_text(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", nargs="?", help="the text; from standard input if not given")
    command.add_argument(
        "--key", default="", help="idempotency key: the same key is the same message"
    )


if __name__ == "__main__":
    sys.exit(main())
