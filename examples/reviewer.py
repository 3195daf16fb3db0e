"""Agent `reviewer`: gets tasks that name a folder, reads the Python files in it, and streams what it finds.

It speaks JSON lines on stdin and stdout and knows nothing else of Postroom, so it can be tried in a shell:

    echo '{"type": "task", "id": "t1", "text": "Review /srv/source"}' | python3 reviewer.py
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from findings import KINDS, Finding, findings_in_file, harmless
from lines import Inbox, Line, say

SKILL = "review-python-source"

MAX_FILES = 2000
"""Files of one review."""

MAX_REPORT = 190_000
"""Bytes of all findings as they travel; the rest is counted."""

MAX_PIECE = 16_000
"""Bytes of findings that are sent at once."""

PIECE_EVERY = 0.5
"""Seconds that a finding waits for others before it is sent."""

PROGRESS_EVERY = 3.0
"""Seconds between two lines that say how far it is."""

QUESTION = "Which folder? Name it by its whole path, such as /srv/source."

_PATH = re.compile(r"(?:^|(?<=[\s\"'`(]))/[^\s/][^\n]{0,4096}", re.MULTILINE)
_AROUND = "\"'`.,;:!?)"
"""What may stand directly behind a path in a sentence."""


class Over(Exception):
    """Nobody wants the review any more: it was canceled, or the worker is being stopped."""


def main() -> None:
    """Work on one line after the other until Postroom says stop."""
    warnings.simplefilter("ignore")  # what the parser thinks of other people's escapes
    inbox = Inbox()
    while (line := inbox.next()) is not None:
        match line["type"]:
            case "task":
                begin(line["id"], said_in(line), inbox)
            case "input":  # the answer to a question, maybe after other tasks
                begin(line["task"], [line["text"]], inbox)
            case "cancel":
                say(type="canceled", task=line["task"])
            case "message":
                text = f"I take tasks that name a folder; my skill is {SKILL}."
                say(type="reply", to=line["id"], text=text)


def said_in(task: Line) -> list[str]:
    """What the requester has said, newest first: a resumed task comes with the answers that it got before."""
    history = [entry["text"] for entry in task.get("history", ()) if entry["role"] == "user"]
    return [*reversed(history), task["text"]]


def begin(task: str, said: list[str], inbox: Inbox) -> None:
    """Review the folder that is named in what was said, or say why not."""
    named = next((path for path in map(path_in, said) if path), "")
    if not named:
        say(type="ask", task=task, text=QUESTION)
        return
    folder = Path(named)
    refusal = refusal_of(folder)
    if refusal:
        say(task=task, **refusal)
        return
    try:
        summary = review(task, folder, inbox)
    except Over:
        if not inbox.stopping:  # else it goes on at the next start
            say(type="canceled", task=task)
    else:
        say(type="complete", task=task, text=summary)


def refusal_of(folder: Path) -> Line:
    """The line that says why nothing in there can be reviewed, empty if something can."""
    shown = harmless(str(folder), 500)
    try:
        if not folder.is_file():
            os.scandir(folder).close()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: no name of a file
        text = f"There is no folder {shown} that this worker can see."
        return {"type": "reject", "text": text}
    except OSError as error:
        text = f"The folder {shown} cannot be read: {error.strerror}."
        return {"type": "fail", "text": text}
    return {}


def path_in(text: str) -> str:
    """The absolute path in a text, "" if there is none: as many words of its line as exist, else the first."""
    found = _PATH.search(text)
    if found is None:
        return ""
    words = found[0].split(" ")
    for count in range(len(words), 0, -1):
        path = " ".join(words[:count])
        for candidate in (path, path.rstrip(_AROUND)):
            if os.path.exists(candidate):  # noqa: PTH110 (Path.exists raises for impossible names)
                return candidate
    return words[0].rstrip(_AROUND)


def review(task: str, folder: Path, inbox: Inbox) -> str:
    """Read every Python file below `folder`, or the one file that it is; the summary.

    Raises:
        Over: nobody wants it any more.
    """

    def check() -> None:
        if inbox.canceled(task) or inbox.stopping:
            raise Over

    report = Report(task)
    files: list[Path] = []
    for found in python_files(folder):
        check()
        if isinstance(found, OSError):
            report.add(
                name_in(folder, found.filename), Finding(1, "unreadable", str(found.strerror))
            )
        elif found is not None:
            files.append(found)
        if len(files) > MAX_FILES:
            break
    lines, told_at = 0, 0.0
    for number, path in enumerate(files[:MAX_FILES], 1):
        check()
        name = name_in(folder, path)
        if time.monotonic() - told_at > PROGRESS_EVERY:
            of = min(len(files), MAX_FILES)
            say(type="update", task=task, text=f"reading {name} ({number} of {of})")
            told_at = time.monotonic()
        length, findings = findings_in_file(path)
        lines += length
        for finding in findings:
            report.add(name, finding)
        report.send_if_due()
    report.send(last=True)
    return summary_of(folder, files, lines, report.counts)


def python_files(folder: Path) -> Iterator[Path | OSError | None]:
    """The Python files below `folder` in order, and what could not be read.

    None stands for a folder without any, so that the caller can look for other things in between. Links are not
    followed, so there is no loop; hidden folders and virtual environments are left out.
    """
    if folder.is_file():
        yield folder
        return
    faults: list[OSError] = []
    for parent, folders, names in os.walk(folder, onerror=faults.append):
        yield from faults
        faults.clear()
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        yield None
        for name in sorted(names):
            path = Path(parent, name)
            if name.endswith(".py") and is_regular(path):
                yield path
    yield from faults


def is_regular(path: Path) -> bool:
    """Whether it is a file and no link, pipe or device, which may have no end."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:  # it is gone by now
        return False


def name_in(folder: Path, path: str | Path) -> str:
    """The name of a file as it is shown: as seen from the folder."""
    name = os.path.relpath(path, folder)
    return harmless(Path(path).name if name == "." else name, 200)


def summary_of(folder: Path, files: list[Path], lines: int, counts: Counter[str]) -> str:
    """What came of it, in one paragraph."""
    shown = harmless(str(folder), 500)
    if not files and not counts:
        return f"There is no Python file in {shown}."
    read = min(len(files), MAX_FILES)
    rest = f" There are more: only the first {read} were read." if len(files) > read else ""
    found = ", ".join(f"{name}: {counts[kind]}" for kind, name in KINDS.items() if counts[kind])
    return (
        f"Reviewed {shown}: files: {read}, lines: {lines}.{rest} Found {found or 'nothing to say'}."
    )


class Report:
    """The findings of one review, streamed as the pieces of one artifact."""

    def __init__(self, task: str) -> None:
        self.counts: Counter[str] = Counter()
        self._task = task
        self._piece: list[str] = []
        self._piece_size = 0
        self._size = 0
        self._left_out = 0
        self._begun = False
        self._sent_at = 0.0

    def add(self, name: str, finding: Finding) -> None:
        """Report a finding in the file `name`, or count it if the report is full."""
        self.counts[finding.kind] += 1
        line = f"{name}:{finding.line} {finding.kind} {finding.text}\n"
        size = len(json.dumps(line))
        if self._left_out or self._size + size > MAX_REPORT:
            self._left_out += 1
            return
        self._piece.append(line)
        self._piece_size += size
        self._size += size
        if self._piece_size > MAX_PIECE:
            self.send()

    def send_if_due(self) -> None:
        """Send what there is, unless something was sent just now."""
        if self._piece and time.monotonic() - self._sent_at > PIECE_EVERY:
            self.send()

    def send(self, *, last: bool = False) -> None:
        """Send the next piece; the first one replaces what an earlier run of the task left.

        The newest finding stays back until the end, so that there is always something in the last piece.
        """
        if last and self._left_out:
            self._piece.append(f"… and {self._left_out} more\n")
        elif last and not self.counts:
            self._piece.append("nothing found\n")
        kept = [] if last else self._piece[-1:]
        text = "".join(self._piece[: len(self._piece) - len(kept)])
        if text:
            more = {"append": self._begun, "last": last}
            say(type="artifact", task=self._task, id="findings", name="findings", text=text, **more)
            self._begun, self._sent_at = True, time.monotonic()
        self._piece, self._piece_size = kept, sum(map(len, kept))


if __name__ == "__main__":
    main()
