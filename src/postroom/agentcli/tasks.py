"""The commands of `postroom-agent` about tasks: ask others for them, wait for them, work on one."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from postroom.agentcli.commands import add_command, beside_text, perform, record_of, text_of
from postroom.agentcli.files import file_fields
from postroom.errors import (
    EnvironmentFault,
    InvalidInput,
    NotRunning,
    PeerError,
    Refused,
)
from postroom.protocol.tasks import EXIT_CODES
from postroom.protocol.verbs import (
    CURRENT,
    AnswerTask,
    Artifact,
    AskAuth,
    AskInput,
    CancelTask,
    Complete,
    Delegate,
    Fail,
    GetTask,
    ListTasks,
    Progress,
    Reject,
)
from postroom_a2a.text import one_line, printable

SLICE = 5.0
"""Seconds of one wait, after which an update is shown."""

AWAY = 600.0
"""Seconds in a row that the sidecar or the control plane may be away during a wait for a task."""

PAUSE = 2.0
"""Seconds between two tries then."""

UNFINISHED = 9
"""Exit code for a task that has not ended: the time is over, or the task asks something."""


def add_commands(commands: Any) -> None:
    """Add the commands about tasks."""
    delegate = add_command(
        commands,
        Delegate,
        usage="postroom-agent delegate (@NICK | --skill SKILL [@NICK]) [TEXT] [options]",
    )
    delegate.add_argument("words", nargs="*", metavar="TEXT", help="who is to do what")
    delegate.add_argument("--wait", action="store_true", help="print the result when it has ended")
    _add_waiting(delegate)
    delegate.set_defaults(run=_delegate)
    tasks = add_command(commands, ListTasks)
    tasks.add_argument("--json", action="store_true", help="JSON, one value a line")
    tasks.set_defaults(run=_list)
    task = add_command(commands, GetTask)
    task.add_argument("--wait", action="store_true", help="until it has ended")
    _add_waiting(task)
    task.set_defaults(run=_show)
    for action in (Progress, Artifact, Complete, Fail, Reject, AskInput, AskAuth):
        saying = add_command(commands, action)
        saying.set_defaults(run=_say)
        if action is Artifact:
            saying.set_defaults(run=_give)
    for action in (CancelTask, AnswerTask):
        add_command(commands, action).set_defaults(run=_change)


def _add_waiting(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="the task as JSON")
    command.add_argument(
        "--timeout", type=float, default=0.0, metavar="SECONDS", help="of --wait; 0: no limit"
    )


def _list(options: argparse.Namespace) -> int:
    for view in perform(ListTasks, record_of(options))["tasks"]:
        _show_view(view, options)
    return 0


def _show(options: argparse.Namespace) -> int:
    if options.wait:
        return _await(options.task, options)
    _show_view(perform(GetTask, record_of(options)), options)
    return 0


def _show_view(view: dict[str, Any], options: argparse.Namespace) -> None:
    _print(json.dumps(view) if options.json else _line(view))


def _change(options: argparse.Namespace) -> int:
    _print(_line(perform(options.action, record_of(options))))
    return 0


def _say(options: argparse.Namespace) -> int:
    options.task = options.task or _own_task()
    perform(options.action, record_of(options))
    return 0


def _give(options: argparse.Namespace) -> int:
    options.task = options.task or _own_task()
    if options.file:
        options.name = options.name or Path(options.file[0]).name
    if len(options.file) == 1 and options.text is None and not options.data:
        # A short text is the artifact's own.
        (file,), options.file = options.file, []
        options.text = ""
        perform(Artifact, record_of(options) | file_fields(file, options.type))
    else:
        perform(Artifact, record_of(options))
    return 0


def _own_task() -> str:
    """The task that this run of the program handles; the present one for a program that handles all.

    Raises:
        InvalidInput: the run handles a message.
    """
    task = os.environ.get("POSTROOM_TASK", CURRENT)
    if not task:
        raise InvalidInput(
            "this run handles a message and not a task", remedy="name a task: --task ID"
        )
    return task


def _delegate(options: argparse.Namespace) -> int:
    words = list(options.words)
    if len(words) > 2:
        raise InvalidInput("too many words", remedy="put the text in quotes")
    # With a skill no agent need be named: then the only word is the text.
    named = len(words) == 2 or not options.skill
    if named and not words:
        raise InvalidInput("the task has no recipient", remedy="name an agent (@nick) or a --skill")
    to = words.pop(0) if named else ""
    text = "" if beside_text(options) and not words else text_of(words[0] if words else None)
    given = perform(Delegate, record_of(options) | {"to": to, "text": text})
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
        if (summary := _summary(view)) != shown:
            shown = summary
            _report(summary)
        if view["final"]:
            return _result(view, options)
        if view["state"] in {"input-required", "auth-required"}:
            _report(f"answer it with: postroom-agent answer {task} TEXT")
            return UNFINISHED
        if left <= 0:
            _report("the task has not ended in time")
            return UNFINISHED


def _look(task: str, wait: float) -> dict[str, Any]:
    """The task after at most `wait` seconds; waits for a control plane that starts again."""
    end = time.monotonic() + AWAY
    while True:
        try:
            return perform(GetTask, {"task": task, "wait": True, "timeout": round(wait, 3)})
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


def _line(view: dict[str, Any]) -> str:
    said = one_line(view["status_text"] or view.get("detail", "") or view.get("text", ""), 200)
    who = view["worker"]["nick"] or view["worker"]["uid"]
    return f"{view['id']} @{one_line(who)} {view['state']}" + (f": {said}" if said else "")


def _summary(view: dict[str, Any]) -> str:
    said = one_line(view["status_text"], 500)
    return f"{view['state']}: {said}" if said else str(view["state"])


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
