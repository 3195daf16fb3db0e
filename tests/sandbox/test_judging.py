"""A template judged against this machine, before anything is made of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.errors import InvalidTemplate
from postroom.protocol.template import Template
from postroom.sandbox.arguments import SHOWN
from postroom.sandbox.template_check import check_program

pytestmark = pytest.mark.requirement("worker-spawn-all-or-nothing")


def template(*command: str, **more: object) -> Template:
    return Template(name="x", command=command, **more)  # ty: ignore[invalid-argument-type]


def program(folder: Path, name: str = "prog", mode: int = 0o755) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    "command",
    [
        ("python3", "/opt/agent/a.py"),
        ("sh", "-c", "awk '{print}'"),
        ("/usr/bin/env", "true"),
        ("/bin/sh",),
        ("./made-later",),
        ("/workspace/made-later",),
    ],
)
def test_what_can_start_or_cannot_be_judged_is_let_through(command: tuple[str, ...]):
    check_program(template(*command, files=("a.py",)), SHOWN)


@pytest.mark.parametrize(
    "command, says, remedy",
    [
        (("no-such-program",), "no program 'no-such-program'", "install it"),
        (("/usr/bin/no-such-program",), "does not exist", ""),
        (("python3", "/opt/agent/b.py"), "workstation.files has no 'b.py'", 'files = ["b.py"]'),
        (("/opt/agent/a.py",), "cannot be executed", '["python3", "/opt/agent/a.py"]'),
        (("{prog}",), "the parameter {prog}", "[overrides]"),
        (("/usr/share",), "cannot be executed", "chmod"),
    ],
)
def test_what_cannot_start_is_refused_with_what_to_do(
    command: tuple[str, ...], says: str, remedy: str
):
    with pytest.raises(InvalidTemplate) as caught:
        check_program(template(*command, files=("a.py",)), SHOWN)
    assert says in caught.value.message
    assert remedy in caught.value.remedy


def test_a_program_outside_the_sandbox_must_be_shown_to_it(tmp_path: Path):
    path = program(tmp_path)

    with pytest.raises(InvalidTemplate, match="not in the sandbox") as caught:
        check_program(template(path), SHOWN)
    assert f'read_only = ["{tmp_path}"]' in caught.value.remedy

    check_program(template(path, read_only=(str(tmp_path),)), SHOWN)
    check_program(template(path), SHOWN, all_shown=True)


def test_a_program_is_looked_for_where_the_template_says(tmp_path: Path):
    program(tmp_path, "mine")
    search = {"PATH": f"{tmp_path}{os.pathsep}/usr/bin"}
    shown = (str(tmp_path),)

    check_program(template("mine", env=search, read_only=shown), SHOWN)
    with pytest.raises(InvalidTemplate, match="no program 'mine'"):
        check_program(template("mine", read_only=shown), SHOWN)


def test_a_program_that_is_a_link_out_of_the_sandbox_is_refused(tmp_path: Path):
    (shown := tmp_path / "shown").mkdir()
    (shown / "prog").symlink_to(program(tmp_path, "real"))

    with pytest.raises(InvalidTemplate, match="leads to"):
        check_program(template(str(shown / "prog"), read_only=(str(shown),)), SHOWN)


def test_a_program_without_the_right_to_run_is_told_from_one_that_is_not_there(tmp_path: Path):
    path = program(tmp_path, mode=0o644)

    with pytest.raises(InvalidTemplate) as caught:
        check_program(template(path, read_only=(str(tmp_path),)), SHOWN)
    assert caught.value.remedy == f"chmod +x {path}"
