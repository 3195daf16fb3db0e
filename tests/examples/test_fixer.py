"""The example `fixer` over its pipes: it does what is allowed, and nothing else."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.program import EXAMPLES, Line, Program, running

TASK = "A discount makes a price negative: mend it."


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository of the demonstration."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "fixer")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "fixer@example.com")
    importlib.import_module("scene").make_shop(tmp_path / "shop")
    return tmp_path / "shop"


@pytest.fixture
def fixer(shop: Path) -> Generator[Program]:
    with running("fixer", str(shop), "0", cwd=shop) as program:
        yield program


def prompt(program: Program, text: str) -> None:
    program.tell(type="user", message={"role": "user", "content": text})


def asked(program: Program) -> tuple[str, dict[str, Any]]:
    """The tool that it asks for next, and its request."""
    request = program.until("control_request")[-1]
    return request["request"]["tool_name"], request


def answer(program: Program, request: Line, **said: Any) -> None:
    response = {"subtype": "success", "request_id": request["request_id"], "response": said}
    program.tell(type="control_response", response=response)


def allow(program: Program, request: Line, **changed: Any) -> None:
    given = request["request"]["input"] | changed
    answer(program, request, behavior="allow", updatedInput=given)


def up_to(program: Program, wanted: str) -> Line:
    """Its request for that tool; everything before is allowed."""
    while (found := asked(program))[0] != wanted:
        allow(program, found[1])
    return found[1]


@pytest.mark.parametrize(
    "told, written", [("refuse it", "raise ValueError"), ("make the price 0", "max(0, ")]
)
def test_it_mends_as_it_was_told_tests_and_commits(
    fixer: Program, shop: Path, told: str, written: str
):
    prompt(fixer, TASK)
    question = up_to(fixer, "AskUserQuestion")
    (text,) = [one["question"] for one in question["request"]["input"]["questions"]]
    allow(fixer, question, answers={text: told})
    edit = up_to(fixer, "Edit")
    assert written in edit["request"]["input"]["new_string"]
    assert written not in (shop / "price.py").read_text()
    allow(fixer, edit)
    allow(fixer, up_to(fixer, "Bash"))  # the tests
    allow(fixer, up_to(fixer, "Bash"))  # the commit
    result = fixer.until("result")[-1]
    assert "committed" in result["result"]
    assert written in (shop / "price.py").read_text()
    log = subprocess.check_output(["git", "log", "--oneline"], cwd=shop, text=True)
    assert "A discount makes no price negative" in log


def test_what_is_denied_it_does_not_do_and_says_why(fixer: Program, shop: Path):
    before = (shop / "price.py").read_text()
    prompt(fixer, TASK)
    edit = up_to(fixer, "Edit")
    answer(fixer, edit, behavior="deny", message="not on a Friday")
    assert "not on a Friday" in fixer.until("result")[-1]["result"]
    assert (shop / "price.py").read_text() == before


def test_what_a_person_edited_is_what_it_writes(fixer: Program, shop: Path):
    prompt(fixer, TASK)
    edit = up_to(fixer, "Edit")
    allow(fixer, edit, new_string="    return max(1, price)")
    up_to(fixer, "Bash")
    assert "return max(1, price)" in (shop / "price.py").read_text()


def test_an_interrupt_ends_the_turn_and_the_next_one_begins(fixer: Program):
    prompt(fixer, TASK)
    up_to(fixer, "Edit")
    fixer.tell(type="control_request", request_id="i1", request={"subtype": "interrupt"})
    assert fixer.until("result")[-1]["is_error"] is True
    prompt(fixer, "hello")
    assert "a script without a model" in fixer.until("result")[-1]["result"]


def test_it_goes_on_in_a_session_that_it_had_and_refuses_another(shop: Path):
    with running("fixer", str(shop), "0", cwd=shop) as program:
        prompt(program, "hello")
        session = program.until("result")[-1]["session_id"]
    with running("fixer", str(shop), "0", "--resume", session, cwd=shop) as program:
        prompt(program, "hello")
        assert program.until("result")[-1]["session_id"] == session
    with running("fixer", str(shop), "0", "--resume", "none", cwd=shop) as program:
        program.close()
        assert program.process.wait(20) == 1
