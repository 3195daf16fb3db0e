"""`/spawn` does what `postroom spawn` does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.client.http import AsyncClient
from postroom.client.locate import ServerAddress
from postroom.errors import InvalidInput, NotFound
from postroom.tui.news import Target
from postroom.tui.typing.commands import Command, parse
from postroom.tui.typing.doing import spawn
from tests.client.standin import TOKEN, Standin, worker

TEMPLATE = """
[worker]
name = "bob"
[workstation]
command = ["sh", "-c", "cat"]
[overrides]
size = "1"
"""
AGENT = """
[worker]
name = "bob"
[workstation]
command = ["sh", "-c", "cat"]
env = { KEY = "{credential}" }
[overrides]
credential = ""
[keys.model]
url = "https://model.example"
variable = "MODEL_KEY"
"""


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[Standin]:
    server = Standin()
    server.announce(tmp_path)
    yield server
    server.close()


def spawned(folder: Path, line: str, project: str = "") -> tuple[str, Target, bool]:
    command = parse(line)
    assert isinstance(command, Command)

    async def run() -> tuple[str, Target, bool]:
        async with AsyncClient.at(folder, "") as client:
            return await spawn(client, command, project)

    return asyncio.run(run())


def test_a_file_is_spawned_with_its_values_into_the_project_that_is_looked_at(
    standin: Standin, tmp_path: Path
) -> None:
    standin.answer("POST /v1/workers", worker(), 201)
    (tmp_path / "my bob.toml").write_text(TEMPLATE)

    said, target, bad = spawned(
        tmp_path,
        f"/spawn '{tmp_path}/my bob.toml' --workspace {tmp_path} --as copy --set size=2 --branches 'rel/*' -n bo",
        "demo",
    )

    body = standin.calls("POST /v1/workers")[0].body
    assert (body["name"], body["project"], body["set"]) == ("bo", "demo", {"size": "2"})
    assert (body["workspace"], body["mode"]) == (str(tmp_path), "copy")
    assert body["branches"] == ["rel/*"]
    assert said.startswith("spawned @bob")
    assert (target.name, bad) == ("bob", False)


def test_the_key_of_the_environment_is_kept_only_if_asked_for(
    standin: Standin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", "sk-hidden")
    standin.answer("GET /v1/credentials", {"credentials": []})
    kept = {"name": "model", "url": "https://x.test", "header": "Authorization", "workers": []}
    standin.answer("POST /v1/credentials", kept, 201)
    standin.answer("POST /v1/workers", worker(), 201)
    file = tmp_path / "agent.toml"
    file.write_text(AGENT)

    with pytest.raises(InvalidInput, match="MODEL_KEY") as refused:
        spawned(tmp_path, f"/spawn {file}")
    assert "--store-key" in refused.value.remedy
    assert not standin.calls("POST /v1/workers")

    said, _, _ = spawned(tmp_path, f"/spawn {file} --store-key")
    assert standin.calls("POST /v1/credentials")[0].body["secret"] == "sk-hidden"
    assert "only the gateway sends it" in said
    assert "sk-hidden" not in said


def test_an_agent_that_ends_at_once_is_told_with_its_last_words(
    standin: Standin, tmp_path: Path
) -> None:
    standin.answer(
        "POST /v1/workers",
        worker(started=False, detail="exit status 3", stderr=["no \x1b[2Jmodel"]),
        201,
    )
    (tmp_path / "a.toml").write_text(TEMPLATE)

    said, _, bad = spawned(tmp_path, f"/spawn {tmp_path}/a.toml")

    assert bad
    assert "| no model" in said
    assert "@bob ended at once: exit status 3" in said


def test_a_folder_and_a_template_that_are_not_there_are_refused_before_anything_is_sent(
    standin: Standin, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="is not a folder"):
        spawned(tmp_path, f"/spawn codex --workspace {tmp_path}/no")
    with pytest.raises(NotFound) as refused:
        spawned(tmp_path, "/spawn claude-cod")
    assert refused.value.remedy == "did you mean claude-code?"
    assert standin.requests == []


def test_a_post_room_of_another_machine_gets_no_folder_of_this_one(
    standin: Standin, tmp_path: Path
) -> None:
    command = parse(f"/spawn codex --workspace {tmp_path}")
    assert isinstance(command, Command)

    client = AsyncClient.on(lambda: ServerAddress(standin.url, 0, TOKEN))
    with pytest.raises(InvalidInput, match="cannot work on a folder of this one"):
        asyncio.run(spawn(client, command, ""))
