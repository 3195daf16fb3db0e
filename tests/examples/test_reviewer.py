"""The example that is given tasks: what it says over its pipes, and what it survives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.program import Line, Program, running

QUESTION = "Which folder?"
UNDOCUMENTED = "def f():\n    pass\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of source to review, empty at first."""
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


@pytest.fixture
def reviewer(tmp_path: Path) -> Iterator[Program]:
    with running("reviewer", cwd=tmp_path) as program:
        program.tell(type="hello", nick="reviewer")
        yield program


def task(program: Program, text: object, name: str = "t1", **more: object) -> None:
    sender = {"uid": "b" * 32, "nick": "lead", "kind": "worker"}
    more = {"attempt": 1, "resumed": False, "history": [], "skill": "review-python-source"} | more
    program.tell(type="task", id=name, context=name, text=str(text), **{"from": sender}, **more)


def outcome(program: Program, text: object, name: str = "t1") -> Line:
    """The line that ends a task."""
    task(program, text, name)
    return program.until("complete", "fail", "reject", "ask", "canceled")[-1]


def findings(lines: list[Line]) -> list[str]:
    """The lines of the artifact that these lines make."""
    pieces = [line for line in lines if line["type"] == "artifact"]
    assert [piece["append"] for piece in pieces] == [False] + [True] * (len(pieces) - 1)
    assert [piece["last"] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert {(piece["id"], piece["name"]) for piece in pieces} == {("findings", "findings")}
    return "".join(piece["text"] for piece in pieces).splitlines()


def many_files(folder: Path, number: int, text: str) -> None:
    """Files with the same content, which take the place of one."""
    first = folder / "f0000.py"
    first.write_text(text)
    for index in range(1, number):
        os.link(first, folder / f"f{index:04}.py")


SHOPPING = (
    '''"""Shopping."""

# TODO: sell things, too
NOTE = "# TODO in a text is none"


class Basket:
    def add(self):
        """Add."""

    def _hidden(self):
        pass


def long():
    """Long."""
'''
    + "    pass\n" * 60
)


def test_findings_are_streamed_with_their_place_and_the_summary_counts_them(
    reviewer: Program, source: Path
) -> None:
    (source / "pkg").mkdir()
    (source / "pkg" / "__init__.py").write_text("")
    (source / "pkg" / "broken.py").write_text("x = 1\ndef f(:\n")
    (source / "pkg" / "shop.py").write_text(SHOPPING)
    (source / "plain.py").write_text("import this\n")
    (source / "readme.md").write_text("# TODO write it\n")

    task(reviewer, f"Please review {source}.")
    said = reviewer.until("complete")

    assert said[0] == {"type": "update", "task": "t1", "text": "reading plain.py (1 of 4)"}
    assert findings(said) == [
        "plain.py:1 no-docstring the module",
        "pkg/broken.py:2 syntax-error invalid syntax",
        "pkg/shop.py:3 todo TODO: sell things, too",
        "pkg/shop.py:7 no-docstring Basket",
        "pkg/shop.py:15 long-function long: 62 lines",
    ]
    assert {line["task"] for line in said} == {"t1"}
    assert said[-1]["text"] == (
        f"Reviewed {source}: files: 4, lines: {len(SHOPPING.splitlines()) + 3}. Found syntax errors: 1, "
        "long functions: 1, missing docstrings: 2, TODO and FIXME comments: 1."
    )


def test_progress_is_said_now_and_then_and_not_for_each_file(
    reviewer: Program, source: Path
) -> None:
    many_files(source, 300, '"""Nothing."""\n')

    task(reviewer, source)
    said = reviewer.until("complete")

    assert len([line for line in said if line["type"] == "update"]) < 5
    assert findings(said) == ["nothing found"]
    assert said[-1]["text"].endswith("files: 300, lines: 300. Found nothing to say.")


def test_an_empty_folder_is_no_fault(reviewer: Program, source: Path) -> None:
    assert outcome(reviewer, source) == {
        "type": "complete",
        "task": "t1",
        "text": f"There is no Python file in {source}.",
    }


def test_a_single_file_can_be_reviewed(reviewer: Program, source: Path) -> None:
    (source / "one.py").write_text(UNDOCUMENTED)

    task(reviewer, source / "one.py")

    assert findings(reviewer.until("complete")) == [
        "one.py:1 no-docstring f",
        "one.py:1 no-docstring the module",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "  {}\n",
        "Review {}",
        "review {}, please and/or soon",
        'what is in "{}"?',
        "(see `{}`)",
        "first line\n{}\nlast line",
    ],
)
def test_the_folder_is_found_in_whatever_was_said(
    reviewer: Program, source: Path, text: str
) -> None:
    folder = source / "my own stuff"
    folder.mkdir()
    (folder / "a.py").write_text('"""Fine."""\n')

    assert "files: 1," in outcome(reviewer, text.format(folder))["text"]


def test_without_a_folder_it_asks_and_goes_on_with_the_answer(
    reviewer: Program, source: Path
) -> None:
    assert outcome(reviewer, "Please review my code.")["type"] == "ask"

    reviewer.tell(type="input", task="t1", text="the usual one")
    asked_again = reviewer.line()
    reviewer.tell(type="input", task="t1", text=f"{source}")
    ended = reviewer.until("complete")[-1]

    assert (asked_again["type"], asked_again["task"]) == ("ask", "t1")
    assert asked_again["text"].startswith(QUESTION)
    assert ended["task"] == "t1"


def test_a_task_in_between_does_not_disturb_a_question(reviewer: Program, source: Path) -> None:
    outcome(reviewer, "", name="asks")

    between = outcome(reviewer, source, name="between")
    reviewer.tell(type="input", task="asks", text=str(source))

    assert (between["type"], between["task"]) == ("complete", "between")
    assert reviewer.until("complete")[-1]["task"] == "asks"


def test_a_question_can_be_canceled(reviewer: Program) -> None:
    outcome(reviewer, "")

    reviewer.tell(type="cancel", task="t1", reason="")

    assert reviewer.line() == {"type": "canceled", "task": "t1"}


def test_a_resumed_task_knows_what_was_said_before(reviewer: Program, source: Path) -> None:
    (source / "a.py").write_text(UNDOCUMENTED)
    history = [
        {"role": "user", "text": "Please review /no/such/folder"},
        {"role": "agent", "text": "Which folder? Try /srv/other"},
        {"role": "user", "text": f"I mean {source}"},
    ]

    task(reviewer, history[0]["text"], attempt=2, resumed=True, history=history)

    # Its first piece does not append: what an earlier run had found is replaced.
    assert len(findings(reviewer.until("complete"))) == 2


@pytest.mark.parametrize(
    "name", ["/no/such/folder", "/no\0such", "/no\ud800such", "/dev/null/deeper"]
)
def test_a_folder_that_is_not_there_is_rejected(reviewer: Program, name: str) -> None:
    said = outcome(reviewer, f"Review {name}")

    assert said["type"] == "reject"
    assert said["text"].startswith("There is no folder /")
    assert said["text"].isprintable()


def test_a_name_that_is_too_long_fails_with_a_sentence(reviewer: Program) -> None:
    said = outcome(reviewer, "/srv/" + "x" * 3000)

    assert said["type"] == "fail"
    assert said["text"].endswith("… cannot be read: File name too long.")


@pytest.fixture
def closed(source: Path) -> Iterator[Path]:
    """The name of a folder that nobody may read; it is opened again at the end."""
    yield source / "closed"
    source.chmod(0o700)
    (source / "closed").chmod(0o700)


def test_what_may_not_be_read_is_said_and_does_not_end_the_review(
    reviewer: Program, source: Path, closed: Path
) -> None:
    closed.mkdir(mode=0)
    (source / "fine.py").write_text(UNDOCUMENTED)
    (source / "secret.py").touch(mode=0)

    task(reviewer, source)
    said = reviewer.until("complete")
    source.chmod(0)
    refused = outcome(reviewer, source, name="t2")

    assert sorted(findings(said)) == [
        "closed:1 unreadable Permission denied",
        "fine.py:1 no-docstring f",
        "fine.py:1 no-docstring the module",
        "secret.py:1 unreadable Permission denied",
    ]
    assert refused["text"] == f"The folder {source} cannot be read: Permission denied."
    assert refused["type"] == "fail"


SLOW = '"""Slow to read."""\n' + "x = [i + 1 for i in range(10)]\n" * 4000


def test_a_cancel_stops_the_review_and_the_next_task_is_taken(
    reviewer: Program, source: Path, tmp_path: Path
) -> None:
    many_files(source, 1000, SLOW)
    (tmp_path / "other").mkdir()
    task(reviewer, source)
    reviewer.until("update")

    reviewer.tell(type="message", id="m1", text="how far?", expects_reply=True)
    reviewer.tell(type="cancel", task="another", reason="")
    reviewer.tell(type="cancel", task="t1", reason="never mind")
    task(reviewer, tmp_path / "other", name="t2")
    said = reviewer.until("complete")

    assert [(line["type"], line.get("task")) for line in said if line["type"] != "artifact"] == [
        ("canceled", "t1"),
        ("reply", None),
        ("canceled", "another"),
        ("complete", "t2"),
    ]


def test_stop_ends_it_in_mid_review_without_a_word_on_the_task(
    reviewer: Program, source: Path
) -> None:
    many_files(source, 1000, SLOW)
    task(reviewer, source)
    reviewer.until("update")

    reviewer.tell(type="stop")

    assert reviewer.rest() == []


def test_it_can_be_tried_with_one_line_on_a_pipe(reviewer: Program, source: Path) -> None:
    reviewer.tell(type="task", id="t1", text=str(source))
    reviewer.close()

    assert reviewer.rest()[-1]["type"] == "complete"


def test_a_message_is_answered_with_what_it_can_do(reviewer: Program) -> None:
    reviewer.tell(type="message", id="m1", text="hello", expects_reply=True)

    said = reviewer.line()

    assert (said["type"], said["to"]) == ("reply", "m1")
    assert "review-python-source" in said["text"]


def test_lines_that_it_does_not_know_are_left_alone(reviewer: Program, source: Path) -> None:
    reviewer.tell(type="receipt", ref=None, id="m1", state="seen")
    reviewer.tell(type="something-new")

    assert outcome(reviewer, source)["type"] == "complete"


def test_the_findings_are_bounded_and_what_is_left_out_is_counted(
    reviewer: Program, source: Path
) -> None:
    (source / "many.py").write_text(
        "".join(f"def {'long_name_' * 8}{n}(): pass\n" for n in range(9000))
    )

    task(reviewer, source)
    said = reviewer.until("complete")

    pieces = [line["text"] for line in said if line["type"] == "artifact"]
    found = findings(said)
    left_out = int(found[-1].removeprefix("… and ").removesuffix(" more"))
    assert sum(len(piece.encode()) for piece in pieces) < 200 * 1024
    assert max(len(piece) for piece in pieces) < 20_000
    assert len(found) - 1 + left_out == 9001
    assert "missing docstrings: 9001" in said[-1]["text"]


def test_the_number_of_files_is_bounded(reviewer: Program, source: Path) -> None:
    many_files(source, 2005, '"""Fine."""\n')

    said = outcome(reviewer, source)["text"]

    assert "files: 2000, lines: 2000. There are more: only the first 2000 were read." in said


def test_hostile_files_harm_nothing(reviewer: Program, source: Path) -> None:
    (source / "null.py").write_bytes(b"x = 1\0\n")
    (source / "binary.py").write_bytes(bytes(range(256)) * 50)
    (source / "coding.py").write_bytes(b"# coding: no-such-thing\nx = 1\n")
    (source / "deep.py").write_text("1+" * 100_000 + "1")
    (source / "deeper.py").write_text("-" * 100_000 + "1")
    (source / "escape.py").write_text(
        '"""Fine."""\n# TODO \x1b[31mred\x07 \u202eback\u2028next ' + "x" * 5000 + "\n"
    )
    (source / "huge.py").write_bytes(b"#" * (2 << 20))
    (source / "line.py").write_text('"""Fine."""\nx = "' + "y" * 900_000 + '"  # FIXME\n')
    (source / "na\nme\x1b[2J.py").write_text("import this\n")
    (source / "loop").symlink_to(source)
    (source / "zero.py").symlink_to("/dev/zero")
    (source / "dangling.py").symlink_to("nowhere")
    os.mkfifo(source / "pipe.py")
    (source / "folder.py").mkdir()
    (source / ".venv").mkdir()
    (source / ".venv" / "hidden.py").write_text("import this\n")

    task(reviewer, source)
    said = reviewer.until("complete")

    found = {entry.partition(":")[0]: entry for entry in findings(said)}
    assert sorted(found) == [
        *("binary.py", "coding.py", "deep.py", "deeper.py", "escape.py", "huge.py"),
        *("line.py", "na\N{REPLACEMENT CHARACTER}me\N{REPLACEMENT CHARACTER}[2J.py", "null.py"),
    ]
    assert all(entry.isprintable() and len(entry) < 400 for entry in found.values())
    assert "larger than" in found["huge.py"]
    assert found["line.py"] == "line.py:2 todo FIXME"
    assert reviewer.process.poll() is None
