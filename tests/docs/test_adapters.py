"""docs/adapters.md: its adapter, installed as its package says and run against an agent."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import InvalidTemplate
from postroom.protocol.template import ADAPTERS, parse_template
from postroom.sidecar.adapters import End
from postroom.sidecar.adapters.registry import turn_adapter
from postroom.sidecar.adapters.turns import Answer, Asked, Event, Setup, TurnAdapter, TurnSaid
from postroom.workers.preparing import check_adapter
from tests.docs.pages import ROOT, blocks

PAGE = "docs/adapters.md"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")

AGENT = """
import json, sys

def say(**record):
    print(json.dumps(record), flush=True)

say(type="session", id=sys.argv[-1])
for line in sys.stdin:
    said = json.loads(line)
    if "prompt" in said:
        say(type="word", text="I look.")
        say(type="may", call="c1", tool="sh", text="ls", input={"command": said["prompt"]})
    else:
        say(type="done" if said["allow"] else "refused", call=said["answer"], text="a.txt")
        say(type="end")
"""
"""The program that the page's adapter is for."""


def file(name: str) -> str:
    """What the page shows of a file."""
    return next(block.text for block in blocks(PAGE) if block.name == name)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the package of the page."""
    project, folder = tmp_path_factory.mktemp("acme"), tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "postroom_acme.py"):
        (project / name).write_text(file(name))
    words = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    subprocess.run([*PIP, *words, "--target", str(folder), str(project)], check=True)
    (folder / "agent.py").write_text(AGENT)
    return folder


@pytest.fixture
def installed(package: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That folder, where Python looks for packages."""
    monkeypatch.syspath_prepend(str(package))
    importlib.invalidate_caches()
    return package


@pytest.mark.requirement("adapter-of-another-package")
def test_the_adapter_of_the_page_is_found_and_runs_its_agent(installed: Path) -> None:
    template = parse_template(file("acme.toml"))
    check_adapter(template.adapter)
    adapter = turn_adapter(template.adapter)(
        Setup((sys.executable, str(installed / "agent.py")), session="s7")
    )
    with subprocess.Popen(
        adapter.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdin
        program.stdin.write(adapter.turn("ls"))
        program.stdin.flush()
        said = heard(adapter, program)
        program.stdin.close()
    assert [dict(item.fields) for item in said if isinstance(item, Event)] == [
        {"session": "s7"},
        {"text": "I look."},
        {"call": "c1", "tool": "sh", "title": "ls", "input": {"command": "ls"}},
        {"call": "c1", "status": "ok", "output": "a.txt"},
        {"status": "completed", "text": "I look."},
    ]
    assert not adapter.finish(End(0))


def heard(adapter: TurnAdapter, program: subprocess.Popen[bytes]) -> list[TurnSaid]:
    """What the agent says until its turn ends; what it asks is allowed."""
    assert program.stdin
    assert program.stdout
    said: list[TurnSaid] = []
    while not said or not isinstance(said[-1], Event) or said[-1].kind != "result":
        found = adapter.feed(program.stdout.readline())
        for item in found:
            if isinstance(item, Asked):
                program.stdin.write(adapter.answer(item.request, Answer(allow=True)))
                program.stdin.flush()
        said += found
    return said


def test_the_adapter_of_the_page_ends_what_its_agent_leaves_open(installed: Path) -> None:
    adapter = turn_adapter("acme")(Setup(("acme",)))
    adapter.turn("go")
    asked = {"type": "may", "call": "c1", "tool": "sh", "text": "ls"}
    adapter.feed(json.dumps(asked).encode() + b"\n")
    said = adapter.finish(End(3))
    results: list[dict[str, Any]] = [dict(i.fields) for i in said if isinstance(i, Event)]
    assert [result["status"] for result in results] == ["interrupted", "failed"]


def test_the_adapter_of_the_page_has_forty_lines_at_most() -> None:
    lines = [line for line in file("postroom_acme.py").splitlines() if line.strip()]
    assert len(lines) <= 40


@pytest.mark.requirement("adapter-of-another-package")
def test_an_adapter_that_no_package_has_is_refused_with_those_that_there_are(
    installed: Path,
) -> None:
    with pytest.raises(InvalidTemplate) as refused:
        check_adapter("acmee")
    assert "'acmee'" in refused.value.message
    assert all(name in refused.value.remedy for name in (*ADAPTERS, "acme"))


def test_the_page_names_every_adapter_of_postroom() -> None:
    page = (ROOT / PAGE).read_text()
    assert [name for name in ADAPTERS if f"`{name}`" not in page] == []
