"""Settings that name a command, planted in every place where somebody can write, at all that Postroom does there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from postroom.errors import PostroomError
from postroom.workers.workspaces import branches
from postroom.workers.workspaces.showing import difference
from postroom.workers.workspaces.taking import merge
from tests.workspaces.bench import Bench, Who, repository
from tests.workspaces.planting import (
    COMMANDS,
    FORMS,
    PLACES,
    REFUSED,
    Plant,
    known_to_git,
    trial,
)

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("workspace-git-closed")]


async def all_of_it(bench: Bench, folder: Path, mode: str, who: Who) -> None:
    """Everything that the git of the host ever does for a worker."""
    placed = await bench.begin(folder, mode, who)
    await bench.work(placed, f"echo more > {who.nick}.txt; echo {who.nick} > a.txt")
    held = await bench.bring(who)
    store = bench.spaces.store(who.uid, held)
    found = await difference(store, held)
    assert f"{who.nick}.txt" in found.text
    with suppress(PostroomError):
        await merge(store, held)
    if held.top:
        await branches.forget(Path(held.top), who.uid)
    await bench.spaces.forget(who.uid)


async def planted(
    bench: Bench, tmp_path: Path, place: str, settings: Mapping[str, str], *modes: str
) -> Plant:
    plant = Plant(tmp_path / "planted", tmp_path / "canary")
    folder = PLACES[place](plant, repository(tmp_path / "app"), settings)
    for number, mode in enumerate(modes):
        who = Who(str(number) * 32, f"coder{number}")
        if place in REFUSED:
            with pytest.raises(PostroomError):
                await all_of_it(bench, folder, mode, who)
        else:
            await all_of_it(bench, folder, mode, who)
        assert not plant.ran(), f"{mode}: {plant.ran()}"
    trial(folder)
    return plant


@pytest.mark.parametrize("place", PLACES)
async def test_no_command_that_is_planted_anywhere_runs(bench: Bench, tmp_path: Path, place: str):
    plant = await planted(bench, tmp_path, place, COMMANDS, "", "direct")
    if place not in ("files of its own", "the repository that it borrows from"):
        assert plant.ran(), "a git of the person's does not run it either"


async def test_no_setting_of_any_name_that_git_knows_runs_a_command(bench: Bench, tmp_path: Path):
    settings = known_to_git()
    assert len(settings) > 500
    await planted(bench, tmp_path, "its configuration", settings, "", "copy", "direct")


@pytest.mark.parametrize("name", FORMS)
async def test_a_setting_that_says_what_a_repository_is_runs_nothing(
    bench: Bench, tmp_path: Path, name: str
):
    plant = Plant(tmp_path / "planted", tmp_path / "canary")
    app = repository(tmp_path / "app")
    settings = COMMANDS | {name: FORMS[name]}
    plant.write(app / ".git" / "config", settings, app)
    with suppress(PostroomError):
        await all_of_it(bench, app, "", Who())
    assert not plant.ran()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("place", PLACES)
async def test_no_single_command_that_is_planted_anywhere_runs(tmp_path: Path, place: str):
    for number, (name, value) in enumerate((COMMANDS | FORMS).items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        plant = Plant(folder / "planted", folder / "canary")
        start = PLACES[place](plant, repository(folder / "app"), {name: value})
        for count, mode in enumerate(("", "copy", "direct")):
            with suppress(PostroomError):
                await all_of_it(Bench(folder / f"room{count}"), start, mode, Who())
            assert not plant.ran(), f"{name} {mode}: {plant.ran()}"
