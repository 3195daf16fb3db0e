"""`postroom task`: list, show, watch, cancel, answer and retry."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.commands.audit import AuditLines
from postroom.cli.completion import agents, tasks
from postroom.cli.content import Given, content_options, said, upload_parts
from postroom.cli.declaring import Answer, answers, asks, limit_option, parameter
from postroom.cli.following import events_option, follow, timeout_option
from postroom.cli.options import connect, state_option
from postroom.cli.output import print_json, print_table
from postroom.cli.saving import Saver, force_option, out_option
from postroom.cli.waiting import said_if_slow
from postroom.cli.workspaces import steps_told, sync, tell_left
from postroom.errors import Conflict, NotFound, RequestTimeout
from postroom.lines.rows import painted
from postroom.lines.tasks import TASK_HEAD, message_rows, task_row, whole_rows
from postroom.lines.text import Cell
from postroom.protocol.limits import SHORT_ID
from postroom.protocol.modes import LOOK
from postroom.protocol.tasks import Door
from postroom.view.tasks import accepted_line, short
from postroom.view.words import address, span
from postroom.view.workspaces import merged, nothing_to_merge, offered, undone
from postroom_a2a.task_state import TaskState
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroom.client.http import Client
    from postroom.protocol.shapes import Push, Task, TaskEvent

EXAMPLES = """\b
Examples:
  postroom task list
  postroom task watch ab12cd34
  postroom task answer ab12cd34 "use the main branch"
  postroom task get ab12cd34 --out results
"""

PAGE = 200
NO_PUSHES = "no pushes: no client has a push notification config for this task"

task_argument = click.argument("task", metavar="ID", shell_complete=tasks)


@click.group("task", epilog=EXAMPLES)
@state_option()
def command() -> None:
    """List, watch, answer, cancel and retry tasks.

    An ID may be cut short to 4 digits or more, as long as no other one begins so.
    """


@command.command("list")
@answers(
    "--all everything: Also those that have ended.",
    "--worker @NICK: Only its tasks.",
    parameter(
        f"--in wanted STATE: Only those in this state: {', '.join(TaskState)}.",
        type=click.Choice([state.value for state in TaskState]),
    ),
    f"--door DOOR: Only those asked for over it: {', '.join(Door)}.",
    "--text WORDS: Only those whose request has each of these words.",
    limit_option(100, "Most tasks shown."),
    of="tasks.list",
)
def list_(
    everything: bool, worker: str, wanted: str | None, door: str | None, text: str, limit: int
) -> Answer:
    """List the open tasks, newest first."""
    open_only = not everything and wanted is None and not text
    with connect() as client:
        found = client.tasks(
            open_only=open_only,
            state=wanted or "",
            worker=worker,
            door=door or "",
            text=text,
            limit=limit,
        )
    rows = [task_row(task, time.time()) for task in found]
    none = "no open tasks (all: postroom task list --all)" if open_only else "no tasks"
    return {"tasks": found}, lambda: print_table(TASK_HEAD, rows, cut=("LAST", "TASK"), empty=none)


@command.command("show", short_help="Show a task with all that happened.")
@answers(task_argument, "--audit: Also its records in the audit log.")
def show(task: str, audit: bool, as_json: bool) -> Answer:
    """Show a task: who asked and over what, its request, all that happened, its results, and its messages.

    The messages are those that its agent sent in its course, and the tasks that it gave to others for it.
    """
    with connect() as client:
        found = client.task(task)
        events = list(_events(client, found["id"]))
        messages = client.task_messages(found["id"])
        records = list(client.audit(task=found["id"], plumbing=False)) if audit else []
        lines = AuditLines(client)
        kept = [record for record in records if "omitted" not in record]
        shown = [] if as_json else [lines.line(record) for record in kept]
    record = found | {"events": events, "messages": messages} | ({"audit": kept} if audit else {})
    now = time.time()
    rows = (*whole_rows(found, events, now), *message_rows(messages, now))
    lines = [line for each in rows for line in painted(each, None)]
    if audit:
        lines.append("audit log:" if shown else "the audit log has nothing about it")
    return record, [*lines, *shown]


@command.command("retry", short_help="Ask for a task again that failed.")
@asks(
    "tasks.retry",
    task_argument,
    "--force: Also a completed one: it is done twice.",
    "--key KEY: Each key gives one new task; without one there is one.",
)
def retry(task: Task) -> None:
    """Ask for a task again that failed, was canceled or rejected: the same message to the same agent, as a new task.

    The new task is printed, and waits if the agent is offline; both name each other in `postroom task show`. What was
    asked for again already gives that task.
    """
    click.echo(accepted_line(task))
    if task["final"]:
        again = f"postroom task retry {short(task['id'])}"
        click.echo(f"it was asked for again before, as that one; once more: {again}", err=True)
    elif task["detail"]:
        click.echo(one_line(task["detail"], 300), err=True)


@command.command("get", short_help="Save the results of a task as files.")
@answers(task_argument, out_option, force_option)
def get(task: str, out: str | None, force: bool) -> Answer:
    """Save the results of a task: each file, each piece of data, and each text under its artifact's name.

    Prints a line for each file that was written. What the agent named stays in the folder; a file that is there
    already is kept unless --force is given.
    """
    with connect() as client:
        found = client.task(task)
        saver = Saver(client, Path(out or "."), force=force)
        for artifact in found.get("artifacts", []):
            saver.save(artifact, artifact["name"] or artifact["id"], texts=True)
        saver.save({"parts": found.get("status_parts", [])}, "status")

    def say() -> None:
        saver.tell()
        if not (saver.saved or saver.left):
            none = f"task {short(found['id'])} is {one_line(found['state'])} and has no results"
            click.echo(none, err=True)

    saved = [str(path) for path in saver.saved]
    return {"id": found["id"], "saved": saved, "left": saver.left}, say


@command.command("watch", short_help="Show how a task goes, then its result.")
@answers(task_argument, events_option, timeout_option)
def watch(task: str, events: bool | None, timeout: float | None, as_json: bool) -> int:
    """Show how a task goes from its beginning to its end, then its result.

    The result alone goes to standard output. The exit status is 0 if the task completed, 11 if it failed, 12
    if it was canceled, 13 if it was rejected. Ctrl-C ends the watching, not the task. With --json each change
    is one line of JSON.
    """
    with connect() as client, client.transport.within(timeout):
        return follow(client, client.task(task), timeout=timeout, as_json=as_json, events=events)


@command.command("cancel")
@answers(task_argument, "--reason TEXT: What the agent is told.")
def cancel(task: str, reason: str, as_json: bool) -> None:
    """Have an agent stop working on a task.

    An agent that works on it has 5 s to stop, or what its template says; then its program is ended. The exit
    status is 9 if the task has not ended yet.
    """
    try:
        with connect() as client, said_if_slow("waiting for the agent to stop ..."):
            found = client.cancel_task(task, reason=reason)
    except KeyboardInterrupt:
        click.echo(f"\nthe agent was asked to stop: postroom task watch {short(task)}", err=True)
        raise click.Abort from None
    if as_json:
        print_json(found)
    if not found["final"]:
        raise RequestTimeout(
            f"{address(found['worker'])} was asked to stop and has not yet: task {short(found['id'])}"
            f" is {found['state']}",
            remedy=f"postroom task watch {short(found['id'])}",
        )
    if not as_json:
        click.echo(f"{short(found['id'])} {one_line(found['state'])}")
        if found["status_text"]:
            click.echo(one_line(found["status_text"], 300), err=True)


@command.command("answer", short_help="Answer the question that a task waits with.")
@answers(task_argument, "text [TEXT]...", content_options)
def answer(task: str, text: tuple[str, ...], **content: Any) -> Answer:
    """Answer the question that a task waits with; without TEXT, or for `-`, from standard input.

    With --file or --data no TEXT is needed.
    """
    given = Given(**content)
    words = said(text, given)
    with connect() as client:
        answered = client.answer_task(task, words, parts=upload_parts(client, given))

    def say() -> None:
        click.echo(f"{short(answered['id'])} answered")
        if answered["detail"] and not answered["final"]:
            click.echo(one_line(answered["detail"], 300), err=True)

    return answered, say


@command.command("pushes", short_help="Show the push notifications of a task; send one again.")
@answers(task_argument, parameter("--again push PUSH: Send this one again now.", default=None))
def pushes(task: str, push: str | None) -> Answer:
    """Show the push notifications of a task: what has gone where, and when the next attempt is.

    PUSH may be cut short like an ID.
    """
    with connect() as client:
        found = client.pushes(task)
        if push is not None:
            found = [client.push_again(task, chosen(found, push)["id"])]

    def say() -> None:
        if not found:
            click.echo(NO_PUSHES, err=True)
            return
        now = time.time()
        print_table(PUSH_HEAD, [push_row(each, now) for each in found], cut=("TO",))
        for line in reason_lines(found):
            click.echo(line)

    return {"pushes": found}, say


@command.command("apply", short_help="Merge what a worker did, or undo that.")
@answers(
    click.argument("ref", metavar="@NICK|ID", shell_complete=agents),
    "--merge: Merge it, if no change of yours stands in the way.",
    "--undo: Take back the last merge.",
    "--tree TEXT: Merge only this: `tree` of diff --json, or of this.",
)
def apply(ref: str, merge: bool, undo: bool, tree: str, as_json: bool) -> None:
    """Bring the branch of the worker NICK, or of the worker of a task, up to date, and say what a merge would do.

    The branch has all that the worker did since it began. With --merge it is merged into the branch that you are on,
    without your hooks and unsigned; with uncommitted changes or on a conflict nothing is merged. With --undo that
    branch is put back to where it was before, unless it has moved since or you have uncommitted changes.
    """
    if merge and undo:
        raise click.UsageError("either --merge or --undo")

    def worker(other: Client) -> str:
        return ref if ref.startswith("@") else other.task(ref)["worker"]["uid"]

    with connect() as client, steps_told(worker):
        found = client.apply(ref, merge=merge, undo=undo, tree=tree)
    if as_json:
        print_json(found)
        return
    tell_left(found["left"])
    if merge:
        click.echo(merged(found))
        for note in found["notes"]:
            if note.startswith(LOOK):
                click.echo(one_line(note), err=True)
        click.echo(f"to go back: postroom task apply @{one_line(found['worker'])} --undo", err=True)
    elif undo:
        click.echo(undone(found))
    elif found["command"]:
        for line in offered(found):
            click.echo(line, err=True)
        click.echo(one_line(found["command"]))
    else:
        said = f"{nothing_to_merge(found)} (postroom diff {one_line(found['worker'])})"
        click.echo(said, err=True)


command.add_command(sync)


def _events(client: Client, task_id: str) -> Iterator[TaskEvent]:
    """All changes of a task, page by page."""
    after = 0
    while page := client.task_events(task_id, after=after, limit=PAGE):
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1]["seq"]


# ── rows of pushes ──

PUSH_HEAD = ("PUSH", "CHANGE", "STATE", "TRIES", "NEXT", "TO")

COLOURS = {"delivered": "green", "pending": "yellow", "given-up": "red"}

PREFIX = "push_"


def push_row(push: Push, now: float) -> list[Cell]:
    """A push in a table under `PUSH_HEAD`."""
    state, next_at = push["state"], push["next_at"]
    due = "" if next_at is None else max(0.0, parse_time(next_at) - now)
    return [
        Cell(_digits(push["id"])[:SHORT_ID]),
        Cell(push["what"]),
        Cell(state, COLOURS.get(state)),
        Cell(str(push["attempts"])),
        Cell("" if due == "" else f"in {span(due)}" if due else "now"),
        Cell(push["url"]),
    ]


def reason_lines(pushes: Iterable[Push]) -> Iterator[str]:
    """Why attempts failed, a line for each push: a table would cut off what counts."""
    for push in pushes:
        if push["reason"]:
            yield f"{_digits(push['id'])[:SHORT_ID]}: {one_line(push['reason'], 300)}"


def chosen(pushes: Sequence[Push], ref: str) -> Push:
    """The push whose id is `ref`, or begins with it.

    Raises:
        NotFound, Conflict: none fits, or several.
    """
    wanted = _digits(ref)
    found = [push for push in pushes if wanted and _digits(push["id"]).startswith(wanted)]
    if not found:
        raise NotFound(f"the task has no push {one_line(ref, 64)!r}")
    if len(found) > 1:
        raise Conflict(f"several pushes begin with {one_line(ref, 64)!r}")
    return found[0]


def _digits(push: str) -> str:
    return push.removeprefix(PREFIX)
