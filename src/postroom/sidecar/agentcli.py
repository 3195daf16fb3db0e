"""`postroom-agent`: the local API as a command, for agents that run shell commands.

Standard library only, so that it starts at once in any sandbox. Exit codes are those of `postroom.errors`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlencode, urlsplit

from postroom.errors import (
    BusDisconnected,
    NotRunning,
    PostroomError,
    ProtocolViolation,
    exit_code,
    from_problem,
)
from postroom.protocol.text import one_line

TIMEOUT = 60.0
"""Seconds for an answer; the sidecar itself gives up sooner."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        _run(options)
    except PostroomError as error:
        sys.stderr.write(f"postroom-agent: {error}\n")
        return exit_code(error)
    except BrokenPipeError:
        return 0
    return 0


def _run(options: argparse.Namespace) -> None:
    match options.command:
        case "send":
            body = {"to": options.to, "expects_reply": options.expects_reply}
            body |= {"expires_in": options.expires_in, "key": options.key}
            _print(_call("POST", "/v1/send", body | {"text": _text(options)})["id"])
        case "reply":
            body = {"to": options.id, "key": options.key, "text": _text(options)}
            _print(_call("POST", "/v1/reply", body)["id"])
        case "post":
            body = {"project": options.project, "key": options.key, "text": _text(options)}
            _print(_call("POST", "/v1/post", body)["id"])
        case "seen":
            _print(_call("POST", "/v1/seen", {"id": options.id})["id"])
        case "whoami":
            me = _call("GET", "/v1/whoami")
            _print(json.dumps(me) if options.json else f"@{me['nick']} {me['uid']}")
        case "agents":
            query = urlencode({"skill": options.skill}) if options.skill else ""
            for agent in _call("GET", f"/v1/agents?{query}")["agents"]:
                _print(json.dumps(agent) if options.json else _found(agent))
        case "inbox":
            for message in _call("GET", "/v1/inbox"):
                _print(json.dumps(message) if options.json else _line(message))


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


def _text(options: argparse.Namespace) -> str:
    if options.text is not None:
        return str(options.text)
    return sys.stdin.buffer.read().decode("utf-8", errors="replace").removesuffix("\n")


def _call(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    address = urlsplit(os.environ.get("POSTROOM_API", ""))
    if not address.hostname or not address.port:
        raise NotRunning(
            "POSTROOM_API does not say where the sidecar is",
            remedy="run this inside a worker of Postroom",
        )
    # Not urllib: it would go through a proxy that the environment names.
    connection = HTTPConnection(address.hostname, address.port, timeout=TIMEOUT)
    try:
        headers = {"content-type": "application/json"} if body is not None else {}
        payload = None if body is None else json.dumps(body).encode()
        connection.request(method, path, payload, headers)
        response = connection.getresponse()
        return _answer(response.status, response.read())
    except (OSError, HTTPException) as error:
        raise BusDisconnected(f"the sidecar does not answer: {error}") from error
    finally:
        connection.close()


def _answer(status: int, payload: bytes) -> Any:
    try:
        document = json.loads(payload)
    except ValueError as error:
        raise ProtocolViolation("the sidecar's answer is no JSON") from error
    if status >= 400:
        raise from_problem(document if isinstance(document, dict) else {}, status)
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="postroom-agent", description="Messages of this worker: send, answer, confirm."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

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
    return parser


def _add_text(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", nargs="?", help="the text; from standard input if not given")
    command.add_argument(
        "--key", default="", help="idempotency key: the same key is the same message"
    )


if __name__ == "__main__":
    sys.exit(main())
