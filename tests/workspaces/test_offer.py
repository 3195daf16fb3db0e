"""What a person is offered where no worker works yet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from postroom.protocol.template import parse_template
from postroom.templates.shipped import listed
from postroom.workers.offer import (
    ASK,
    AUTONOMOUS,
    Agent,
    installed,
    means,
    offer,
    place_of,
    words,
)
from tests.client.standin import worker
from tests.templates.machine import executable, machine
from tests.workspaces.bench import git, repository


def hired(**changes: Any) -> Any:
    """A worker as the status has it."""
    return worker(**changes)


CLAUDE = Agent("claude-code", "claude", "Claude Code 2.1.330", "api.anthropic.com", "kept")
CODEX = Agent("codex", "codex", "Codex", "api.openai.com", "none", add="postroom credential add …")
APP = Path("/src/app")
SPACE = {"path": "/src/app", "mode": "worktree", "branch": "postroom/claude"}


@pytest.mark.requirement("one-word-offers")
@pytest.mark.parametrize(
    "agents, place, workers, asked, shown",
    [
        ([CODEX, CLAUDE], (APP, ""), [], False, (["claude-code", "codex"], APP, "")),
        ([CLAUDE], (APP, ""), [hired(workspace=SPACE)], False, (["claude-code"], None, "")),
        ([CLAUDE], (APP, ""), [hired(workspace=SPACE)], True, (["claude-code"], APP, "")),
        ([CLAUDE], (APP, ""), [hired(workspace=None)], False, (["claude-code"], APP, "")),
        ([], (None, "a home"), [], False, ([], None, "a home")),
        ([], (None, "a home"), [hired()], False, ([], None, "")),
        ([], (APP, ""), [hired()], False, ([], None, "")),
    ],
)
def test_a_worker_is_offered_in_a_repository_without_one_and_else_it_is_said_why_not(
    agents: list[Agent], place: Any, workers: list[Any], asked: bool, shown: Any
):
    found = offer(agents, place, workers, asked=asked)
    assert ([agent.template for agent in found.agents], found.folder, found.why) == shown


def test_the_agent_is_shown_with_the_nick_that_it_gets():
    found = offer([CLAUDE], (APP, ""), [hired(nick="claude"), hired(nick="claude-2")])
    assert found.agents[0].nick == "claude-3"
    assert "postroom/claude-3" in means(found.agents[0], ASK)


@pytest.mark.requirement("one-word-offers")
@pytest.mark.parametrize("how", [ASK, AUTONOMOUS])
def test_what_an_agent_reaches_and_does_unasked_is_what_its_template_says(tmp_path: Path, how: str):
    for each in listed():
        executable(tmp_path / "bin" / each.needs.program)
    agents = installed([], machine(tmp_path, tmp_path / "bin"), tmp_path)
    assert len(agents) == len(listed())
    for agent, each in zip(agents, listed(), strict=True):
        template = parse_template(each.text, {"program": "/bin/it"})
        assert template.egress == (f"https://{agent.host}",)
        assert template.auto_deny == ()  # else not everything would go unasked
        said = means(agent, how)
        assert f"reaches {agent.host} and the agents here, nothing else of the network" in said
        assert ("asks for nothing" in said) == (how == AUTONOMOUS)


def test_what_is_taken_becomes_the_words_of_a_spawn():
    line = words(CLAUDE, "/src/my app", ASK, "mend it")
    assert line == ["claude-code", "--workspace", "/src/my app", "--task", "mend it"]
    stores = Agent("codex", "codex", "", "", "", stores=True)
    line = words(stores, "/a", AUTONOMOUS, " ")
    assert line == ["codex", "--workspace", "/a", "--store-key", "--autonomous"]


@pytest.mark.requirement("one-word-offers")
def test_no_worker_is_offered_in_a_home_at_the_root_in_no_repository_or_in_one_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home, state = tmp_path / "home", tmp_path / "state"
    app = repository(home / "app")
    (app / "deep").mkdir()
    (home / "plain").mkdir()

    def of(folder: Path) -> tuple[Path | None, str]:
        return place_of(folder, home, state)

    assert of(app) == of(app / "deep") == (app, "")
    assert "your home folder" in of(home)[1]
    assert "your home folder" in of(tmp_path)[1]
    assert "the root" in of(Path("/"))[1]
    assert "no git repository" in of(home / "plain")[1]
    repository(home / ".ssh" / "keys")
    assert "no worker gets" in of(home / ".ssh" / "keys")[1]
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert "belongs to another user" in of(app)[1]
    monkeypatch.undo()
    git(home, "init", "-q")
    assert "the repository is your home folder" in of(home / "plain")[1]


def test_agents_are_found_with_the_keys_of_the_environment_and_no_secret_is_shown(tmp_path: Path):
    executable(tmp_path / "bin" / "codex")
    executable(tmp_path / ".local" / "bin" / "claude")
    here = machine(tmp_path, tmp_path / "bin", OPENAI_API_KEY="sk-hidden")
    claude, codex = installed([], here, tmp_path / "state")
    assert (claude.template, claude.ready, claude.host) == (
        "claude-code",
        False,
        "api.anthropic.com",
    )
    assert "ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN" in claude.key
    begins = f"postroom --state {tmp_path}/state credential add anthropic --host api.anthropic.com"
    assert claude.add.startswith(begins)
    assert (codex.template, codex.ready, codex.stores) == ("codex", True, True)
    assert codex.key.startswith("OPENAI_API_KEY of this shell")
    assert "sk-hidden" not in repr((claude, codex))


def test_a_key_that_is_for_a_model_elsewhere_is_never_sent_to_the_usual_one(tmp_path: Path):
    executable(tmp_path / "bin" / "codex")
    elsewhere = "http://127.0.0.1:8123/llm/v1/"
    there = machine(tmp_path, tmp_path / "bin", OPENAI_API_KEY="sk", OPENAI_BASE_URL=elsewhere)
    (codex,) = installed([], there, tmp_path)
    assert codex.host == "127.0.0.1:8123"
