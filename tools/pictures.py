"""Draw the two paths of docs/architecture.md from the steps below: `python -m tools.pictures`.

Writes docs/message.svg and docs/task.svg, and the table of steps below each of them. A test fails when one of them is
stale, or when a step names a file that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "architecture.md"

COMMAND, CONTROL, SERVER, GATEWAY, SIDECAR, AGENT = LANES = (
    "command",
    "control plane",
    "nats-server",
    "gateway",
    "sidecar",
    "agent",
)
"""From left to right; between the gateway and the sidecar stands the wall."""


@dataclass(frozen=True)
class Step:
    """One step: from which lane to which, a word for the arrow, a sentence for the table, the modules that do it.

    A module's path begins below `src/postroom`, or with `postroom_a2a`.
    """

    source: str
    target: str
    label: str
    sentence: str
    modules: tuple[str, ...]


MESSAGE = (
    Step(
        COMMAND,
        CONTROL,
        "POST /v1/messages",
        "The command finds the post room by `server.json` and its lock, and asks its HTTP API, at the unix socket of "
        "its owner, to send.",
        ("cli/commands/send.py", "client/locate.py", "client/wire.py", "client/http.py"),
    ),
    Step(
        CONTROL,
        CONTROL,
        "envelope, id",
        "The API checks Host, Origin and key. The post office finds the recipient and makes the envelope; its id "
        "follows from sender, recipient and key.",
        ("control/org_router.py", "control/ops/messages.py", "mail/office.py"),
    ),
    Step(
        CONTROL,
        SERVER,
        "INBOX",
        "The envelope is published to `worker.<uid>.inbox.<sender>`. The server has it on disk before it "
        "acknowledges: the message is **accepted**.",
        ("projection/submit.py", "bus/nats/bus.py"),
    ),
    Step(
        SERVER,
        CONTROL,
        "fold",
        "The projection reads the log, writes the message's row, and wakes who waits for it.",
        ("projection/fold.py", "mail/projection.py", "projection/changes.py"),
    ),
    Step(
        SERVER,
        GATEWAY,
        "deliver",
        "The sidecar's pull brings the record to the worker's door. The gateway checks each frame and records it "
        "before it passes.",
        ("gateway/server.py", "gateway/nats/proxy.py", "audit/log.py"),
    ),
    Step(
        GATEWAY,
        SIDECAR,
        "relay",
        "The sidecar checks where the record came in, and notes the message in its journal before the agent sees it.",
        ("bus/acceptance.py", "sidecar/inbox.py", "sidecar/journal.py"),
    ),
    Step(
        SIDECAR,
        AGENT,
        "message",
        "The adapter writes it as a line on the agent's standard input. When the line was read off the pipe, the "
        "sidecar reports **delivered**, unless the agent confirms it within a moment.",
        ("sidecar/adapters/jsonl.py", "sidecar/session.py", "sidecar/process.py"),
    ),
    Step(
        AGENT,
        SIDECAR,
        "reply",
        "The agent prints a line of type `reply`; the adapter makes an action of it.",
        ("sidecar/adapters/jsonl.py", "protocol/verbs.py", "sidecar/actions.py"),
    ),
    Step(
        SIDECAR,
        SERVER,
        "INBOX, RECEIPTS",
        "The reply is a message of its own, stored in the sender's inbox. The journal notes the confirmation, "
        "then the delivery is acknowledged. What is confirmed without a reply gets the receipt **seen** in between.",
        ("sidecar/outgoing.py",),
    ),
    Step(
        SERVER,
        CONTROL,
        "fold",
        "The projection folds the reply, which makes the first message **answered**; the clerk stores that as a "
        "receipt for its sender.",
        ("mail/projection.py", "mail/clerk.py"),
    ),
    Step(
        CONTROL,
        COMMAND,
        "answer",
        "The request that waited ends. The command prints the answer, and only then marks it as seen.",
        ("mail/office.py", "cli/waiting.py"),
    ),
)
"""`postroom send @nick TEXT --wait answered`."""

TASK = (
    Step(
        COMMAND,
        CONTROL,
        "POST /v1/tasks",
        "The command asks the API for a task, by nick or by skill.",
        ("cli/commands/delegate.py", "control/ops/tasks.py", "tasks/assignment.py"),
    ),
    Step(
        CONTROL,
        SERVER,
        "INBOX",
        "The request is a message with `request` in its envelope, stored like any message. The task's id follows "
        "from worker, requester and message id, so it is known at once.",
        ("tasks/requests.py", "projection/submit.py"),
    ),
    Step(
        SERVER,
        CONTROL,
        "fold",
        "The projection shows the task as `submitted`, whether or not its worker runs.",
        ("tasks/rules.py", "store/tasks.py"),
    ),
    Step(
        SERVER,
        SIDECAR,
        "deliver",
        "The request comes through the gateway as a message does. The inbox hands it to the task engine.",
        ("sidecar/inbox.py", "tasks/engine.py"),
    ),
    Step(
        SIDECAR,
        SERVER,
        "TASKS: submitted",
        "The engine stores the task's first record and then acknowledges the request: from here on the records say "
        "what is to be done.",
        ("tasks/engine.py", "tasks/log.py", "tasks/records.py"),
    ),
    Step(
        SIDECAR,
        AGENT,
        "task",
        "In its turn the task is begun: a `working` record is stored (the first, if nothing waits), then the agent "
        "reads a line of type `task`.",
        ("tasks/backlog.py", "tasks/execution.py", "sidecar/program.py"),
    ),
    Step(
        AGENT,
        SIDECAR,
        "update, artifact",
        "The agent says how far it is and what it has made.",
        ("sidecar/adapters/jsonl.py", "protocol/verbs.py", "sidecar/actions.py"),
    ),
    Step(
        SIDECAR,
        SERVER,
        "TASKS: working …",
        "Each change is a record that names the one before it; the server refuses any other. Nobody is told of a "
        "change before it is stored.",
        ("tasks/execution.py", "tasks/log.py"),
    ),
    Step(
        SERVER,
        CONTROL,
        "fold",
        "The projection checks that each record continues its chain. The clerk tells a requesting worker by its "
        "priority lane, and raises an alert for a question.",
        ("tasks/rules.py", "tasks/clerk.py"),
    ),
    Step(
        CONTROL,
        COMMAND,
        "events",
        "The command follows the task's stream of events, and prints progress as it is stored.",
        ("feed/records.py", "client/stream.py", "cli/following.py"),
    ),
    Step(
        COMMAND,
        SIDECAR,
        "cancel, answer",
        "A cancel or an answer overtakes all messages: the control plane checks who asks and stores it on the "
        "worker's priority lane.",
        ("tasks/service.py", "sidecar/notices.py"),
    ),
    Step(
        SIDECAR,
        COMMAND,
        "completed",
        "The last record ends the task. It is folded like every other, the request becomes **answered**, and the "
        "command prints the result.",
        ("tasks/engine.py", "tasks/views.py", "cli/following.py"),
    ),
)
"""`postroom delegate @nick TEXT --wait`."""

PATHS = {"message": MESSAGE, "task": TASK}

_WIDTH = 150
_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#46648c"/></marker></defs>'
)
_TOP = 70
_ROW = 44
_STYLE = (
    "text{font:13px sans-serif;fill:#222}.n{font-weight:bold}.lane{font-weight:bold;text-anchor:middle}"
    ".label{text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:5}.box{fill:#eef3fa;stroke:#46648c}.life{stroke:#b8c4d4}"
    ".wall{stroke:#a33;stroke-width:5}.wallname{fill:#a33;text-anchor:middle}"
    ".arrow{stroke:#46648c;stroke-width:1.6;fill:none;marker-end:url(#head)}"
)


def picture(steps: Sequence[Step]) -> str:
    """The path as an SVG: a lane for each process, an arrow for each step, numbered as in the table."""
    height = _TOP + _ROW * len(steps) + 20
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH * len(LANES)} {height}">',
            f"<style>{_STYLE}</style>",
            _HEAD,
            '<rect width="100%" height="100%" fill="#fff"/>',
            *_lanes(height),
            *(line for number, step in enumerate(steps) for line in _arrow(number, step)),
            "</svg>\n",
        ]
    )


def _middle(lane: str) -> int:
    return LANES.index(lane) * _WIDTH + _WIDTH // 2


def _lanes(height: int) -> Iterator[str]:
    for lane in LANES:
        x = _middle(lane)
        yield f'<line class="life" x1="{x}" y1="48" x2="{x}" y2="{height - 10}"/>'
        yield f'<rect class="box" x="{x - 62}" y="16" width="124" height="32" rx="6"/>'
        yield f'<text class="lane" x="{x}" y="37">{lane}</text>'
    x = (_middle(GATEWAY) + _middle(SIDECAR)) // 2
    yield f'<line class="wall" x1="{x}" y1="16" x2="{x}" y2="{height - 10}"/>'
    yield f'<text class="wallname" x="{x}" y="12">wall</text>'


def _arrow(number: int, step: Step) -> Iterator[str]:
    y = _TOP + _ROW * number + 22
    start, end = _middle(step.source), _middle(step.target)
    if start == end:
        yield f'<path class="arrow" d="M{start} {y - 8}h34v16h-28"/>'
        x = start + 92
    else:
        yield f'<path class="arrow" d="M{start} {y}H{end - 3 if end > start else end + 3}"/>'
        x = (start + end) // 2
    label = f'<tspan class="n">{number + 1}</tspan> {escape(step.label)}'
    yield f'<text class="label" x="{x}" y="{y - 8}">{label}</text>'


def table(steps: Sequence[Step]) -> str:
    """The same path as a table of Markdown."""
    rows = (
        f"| {number} | {_where(step)} | {step.sentence} | {', '.join(f'`{m}`' for m in step.modules)} |"
        for number, step in enumerate(steps, 1)
    )
    return "\n".join(("| | where | what happens | modules |", "| --- | --- | --- | --- |", *rows))


def _where(step: Step) -> str:
    return step.source if step.source == step.target else f"{step.source} → {step.target}"


def written(document: str) -> str:
    """`document` with each table between its two marks as it is now."""
    for name, steps in PATHS.items():
        begin, end = f"<!-- `python -m tools.pictures` writes {name} -->\n", "<!-- to here -->\n"
        before, _, rest = document.partition(begin)
        after = rest.partition(end)[2]
        inner = f"\n![{name}]({name}.svg)\n\n{table(steps)}\n\n"
        document = f"{before}{begin}{inner}{end}{after}"
    return document


def file_of(module: str) -> Path:
    """Where a module of a step lies."""
    folder = (
        ROOT / "a2a" / "src" if module.startswith("postroom_a2a/") else ROOT / "src" / "postroom"
    )
    return folder / module


if __name__ == "__main__":
    for name, steps in PATHS.items():
        (DOCUMENT.parent / f"{name}.svg").write_text(picture(steps), encoding="utf-8")
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
