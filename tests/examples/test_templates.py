"""The templates of the examples, and the two programs together: what one is told of the other's work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.protocol.template import parse_template
from tests.examples.program import EXAMPLES, running

TEMPLATES = sorted(EXAMPLES.glob("*.toml"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_names_files_that_exist_and_all_that_its_program_imports(path: Path) -> None:
    template = parse_template(path.read_text())

    assert template.name == path.stem
    present = {file.stem for file in EXAMPLES.glob("*.py")}
    named = {Path(name).stem for name in template.files}
    assert named <= present
    imported = {
        line.split()[1]
        for name in template.files
        for line in (EXAMPLES / name).read_text().splitlines()
        if line.startswith(("from ", "import "))
    }
    assert imported & present <= named


def test_the_lead_looks_for_the_skill_that_the_reviewer_has() -> None:
    lead = parse_template((EXAMPLES / "lead.toml").read_text())
    reviewer = parse_template((EXAMPLES / "reviewer.toml").read_text(), {"folder": "/a b/c"})

    assert lead.command[-1] in reviewer.skills
    assert reviewer.read_only == ("/a b/c",)


def test_a_folder_is_reviewed_from_the_delegation_to_the_summary(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import this\n")
    skill = "review-python-source"
    with (
        running("lead", str(tmp_path), skill, cwd=tmp_path) as lead,
        running("reviewer", cwd=tmp_path) as reviewer,
    ):
        lead.tell(type="hello")
        lead.line()
        party = {"uid": "a" * 32, "nick": "reviewer", "kind": "worker"}
        lead.tell(type="agents", ref="find", agents=[{**party, "online": True}])
        request = lead.until("delegate")[-1]
        reviewer.tell(type="task", id="t1", text=request["text"], history=[])
        about = {"type": "task_update", "task": "t1", "from": party, "seq": 1}
        for line in reviewer.until("complete"):
            final = line["type"] == "complete"
            artifact = line if line["type"] == "artifact" else None
            state = "completed" if final else "working"
            lead.tell(
                **about,
                state=state,
                final=final,
                text=line["text"] if final else "",
                artifact=artifact,
            )
        lead.tell(type="stop")
        said = lead.rest()

    assert [line["text"] for line in said] == [
        "@reviewer found a.py:1 no-docstring the module",
        f"@reviewer has reviewed it: Reviewed {tmp_path}: files: 1, lines: 1. Found missing docstrings: 1.",
    ]


@pytest.mark.parametrize("name", ["absent", "file"])
def test_the_demonstration_of_no_folder_says_so_before_it_starts_anything(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").write_text("")
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--folder", str(tmp_path / name)]

    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert done.returncode == 2
    assert f"{tmp_path / name} is no folder" in done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
