"""What `postroom-agent` does about tasks: ask others for them, wait for them, work on one."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from postroom.agentcli.blobs import file_fields
from postroom.agentcli.local_client import call
from postroom.errors import (
    EnvironmentFault,
    InvalidInput,
    NotRunning,
    PeerError,
    Refused,
)
from postroom.protocol.tasks import EXIT_CODES
from postroom_a2a.text import one_line, printable

SLICE = 5.0
"""Seconds of one wait: how late an update is shown."""

PATIENCE = 600.0
"""Seconds in a row that the sidecar or the control plane may be away while somebody waits for a task."""

PAUSE = 2.0
"""Seconds between two tries then."""

UNFINISHED = 9
"""Exit code where the task has not ended: the time is over, or it asks something."""

WORDS = {
    "update": "say how far the task is",
    "artifact": "give a result of the task",
    "complete": "the task is done",
    "fail": "the task cannot be done",
    "reject": "the task will not be done",
    "ask": "ask who wants the task; the answer comes as `input`, or with the task once more",
}
"""Commands about the task that the agent works on."""

_OPTIONAL_TEXT = ("complete", "reject")


def add_commands(commands: Any) -> None:
    """Add the commands about tasks to the parser's."""
    delegate = commands.add_parser(
        "delegate",
        help="ask another agent for a task; prints its id",
        usage="postroom-agent delegate (@NICK | --skill SKILL [@NICK]) [TEXT] [options]",
    )
    delegate.add_argument("words", nargs="*", metavar="TEXT", help="who is to do what")
    delegate.add_argument("--skill", default="", help="any agent that has it")
    delegate.add_argument("--key", default="", help="the same key is the same task")
    delegate.add_argument("--context", default="", help="A2A context that it belongs to")
    delegate.add_argument("--wait", action="store_true", help="print the result when it has ended")
    _add_waiting(delegate)

    tasks = commands.add_parser("tasks", help="tasks of this agent, and those that it asked for")
    tasks.add_argument("--role", choices=("worker", "requester"), default="", help="only those")
    tasks.add_argument("--open", action="store_true", help="only those that have not ended")
    tasks.add_argument("--json", action="store_true", help="JSON, one value a line")

    task = commands.add_parser("task", help="what became of a task")
    task.add_argument("id", help="of the task")
    task.add_argument("--wait", action="store_true", help="until it has ended")
    _add_waiting(task)

    for word, words in WORDS.items():
        saying = commands.add_parser(word, help=words)
        saying.add_argument("text", nargs="?", help=_text_help(word))
        saying.add_argument("--task", default="", metavar="ID", help="another than this one")
        if word == "artifact":
            saying.add_argument("--name", default="", help="for people")
            saying.add_argument("--id", default="", help="of the artifact")
            saying.add_argument("--append", action="store_true", help="a further piece of it")
            saying.add_argument("--more", action="store_true", help="further pieces follow")
            saying.add_argument("--file", default="", metavar="F", help="a file instead of a text")
            saying.add_argument("--type", default="", metavar="T", help="media type of the file")

    cancel = commands.add_parser("cancel", help="end a task that this agent asked for")
    cancel.add_argument("id", help="of the task")
    cancel.add_argument("--reason", default="", help="for who works on it")
    answer = commands.add_parser("answer", help="answer what such a task asks")
    answer.add_argument("id", help="of the task")
    answer.add_argument("text", nargs="?", help="from standard input if not given")


def _add_waiting(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="the task as JSON")
    command.add_argument(
        "--timeout", type=float, default=0.0, metavar="SECONDS", help="of --wait; 0: no limit"
    )


def _text_help(word: str) -> str:
    return "" if word in _OPTIONAL_TEXT else "from standard input if not given"


def run(options: argparse.Namespace) -> int:
    """Carry out one command; returns the exit code.

    Raises:
        PostroomError: it was refused.
    """
    match options.command:
        case "delegate":
            return _delegate(options)
        case "tasks":
            query = urlencode({"role": options.role, "open": int(options.open)})
            for view in call("GET", f"/v1/tasks?{query}")["tasks"]:
                _print(json.dumps(view) if options.json else _line(view))
        case "task":
            if options.wait:
                return _await(options.id, options)
            view = call("GET", _path(options.id))
            _print(json.dumps(view) if options.json else _line(view))
        case "cancel":
            _print(_line(call("POST", _path(options.id, "cancel"), {"reason": options.reason})))
        case "answer":
            body = {"text": text_of(options.text)}
            _print(_line(call("POST", _path(options.id, "answer"), body)))
        case word:
            call(
                "POST",
                _path(options.task or _own_task(), {"ask": "input_required"}.get(word, word)),
                _said(options),
            )
    return 0


def _own_task() -> str:
    """The task that this run of the program is about; where it is about all of them, the present one.

    Raises:
        InvalidInput: it is about a message.
    """
    task = os.environ.get("POSTROOM_TASK", "current")
    if not task:
        raise InvalidInput("this run is about no task", remedy="name one: --task ID")
    return task


def _said(options: argparse.Namespace) -> dict[str, Any]:
    if options.command in _OPTIONAL_TEXT:
        return {"text": options.text or ""}
    if options.command != "artifact":
        return {"text": text_of(options.text)}
    body: dict[str, Any] = {"name": options.name, "id": options.id}
    body |= {"append": options.append, "last": not options.more}
    if not options.file:
        return body | {"text": text_of(options.text)}
    if options.text is not None:
        raise InvalidInput("an artifact is a text or a --file, not both")
    body["name"] = options.name or Path(options.file).name
    return body | file_fields(options.file, options.type)


def text_of(given: str | None) -> str:
    """The text that was given, or what is on standard input."""
    if given is not None:
        return str(given)
    return sys.stdin.buffer.read().decode("utf-8", errors="replace").removesuffix("\n")


def _delegate(options: argparse.Namespace) -> int:
    words = list(options.words)
    if len(words) > 2:
        raise InvalidInput("too many words", remedy="put the text in quotes")
    # With a skill, nobody need be named: then the only word is the text.
    named = len(words) == 2 or not options.skill
    if named and not words:
        raise InvalidInput("who is to do it?", remedy="name an agent (@nick) or a --skill")
    to = words.pop(0) if named else ""
    body = {"to": to, "skill": options.skill, "key": options.key, "context": options.context}
    body |= {"text": text_of(words[0] if words else None)}
    given = call("POST", "/v1/delegate", body)
    if not options.wait:
        _print(json.dumps(given) if options.json else given["task"])
        return 0
    _report(f"task {given['task']} for @{given['to']['nick']}")
    return _await(given["task"], options)


def _await(task: str, options: argparse.Namespace) -> int:
    """Wait for a task, show its updates, and print its result."""
    end = time.monotonic() + options.timeout if options.timeout > 0 else float("inf")
    shown = ""
    while True:
        left = max(0.0, end - time.monotonic())
        view = _look(task, min(SLICE, left))
        if (news := _news(view)) != shown:
            shown = news
            _report(news)
        if view["final"]:
            return _result(view, options)
        if view["state"] in {"input-required", "auth-required"}:
            _report(f"answer it with: postroom-agent answer {task} TEXT")
            return UNFINISHED
        if left <= 0:
            _report("it has not ended in time")
            return UNFINISHED


def _look(task: str, wait: float) -> dict[str, Any]:
    """The task after at most `wait` seconds; a control plane that starts again is waited for."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            query = urlencode({"wait": 1, "timeout": round(wait, 3)})
            return call("GET", f"{_path(task)}?{query}")
        except (PeerError, Refused, EnvironmentFault) as error:
            if isinstance(error, NotRunning) or time.monotonic() >= end:
                raise
            time.sleep(PAUSE)


def _result(view: dict[str, Any], options: argparse.Namespace) -> int:
    if options.json:
        _print(json.dumps(view))
    elif texts := [text for artifact in view["artifacts"] for text in _results(artifact)]:
        _print(printable("\n".join(texts)))
    elif view["state"] == "completed" and view["status_text"]:
        _print(printable(view["status_text"]))
    return EXIT_CODES[view["state"]]


def _results(artifact: dict[str, Any]) -> list[str]:
    """The text of an artifact, and the URLs of its files."""
    urls = [file["url"] for file in artifact.get("files", ())]
    return [artifact["text"], *urls] if artifact["text"] or not urls else urls


def _path(task: str, word: str = "") -> str:
    return f"/v1/tasks/{quote(task, safe='')}" + (f"/{word}" if word else "")


def _line(view: dict[str, Any]) -> str:
    said = one_line(view["status_text"] or view.get("detail", "") or view.get("text", ""), 200)
    who = view["worker"]["nick"] or view["worker"]["uid"]
    return f"{view['id']} @{one_line(who)} {view['state']}" + (f": {said}" if said else "")


def _news(view: dict[str, Any]) -> str:
    said = one_line(view["status_text"], 500)
    return f"{view['state']}: {said}" if said else str(view["state"])


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
