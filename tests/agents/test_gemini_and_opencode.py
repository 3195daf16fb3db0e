"""The real Gemini CLI and OpenCode, driven by the adapters, with a fake model. Run by hand: see hand_installed.py."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters.turns import Answer, Asked, Setup, TurnSaid, Withdrawn
from tests.agents.hand_installed import installed, variables
from tests.fakes.model.server import FakeModel
from tests.sidecar.adapters.driving import Driven, fields

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HELLO = "Hello from the fake model."


@dataclass
class Place:
    """Where an agent works."""

    name: str
    folder: Path
    model: FakeModel

    @contextmanager
    def running(self, adapter: str = "acp", **setup: Any) -> Generator[Driven]:
        """A run of the agent."""
        home, cwd = self.folder / "home", self.folder / "work"
        home.mkdir(exist_ok=True)
        cwd.mkdir(exist_ok=True)
        made = Setup((installed(self.name),), cwd=str(cwd), home=str(home), **setup)
        environment = variables(self.name, home, self.model)
        with Driven(adapter, made, environment, deadline=120) as driven:
            yield driven

    @property
    def last_request(self) -> str:
        """What the model was asked last."""
        return json.dumps(self.model.asked()[-1].body)


@pytest.fixture(scope="module", params=["gemini", "opencode"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    installed(request.param)
    with FakeModel() as model:
        yield Place(request.param, tmp_path_factory.mktemp(request.param), model)


@pytest.fixture(scope="module")
def agent(place: Place) -> Iterator[Driven]:
    """One run over ACP for the turns of the tests."""
    with place.running(instructions="COLLEAGUES: @ann") as driven:
        yield driven


def result(said: list[TurnSaid]) -> dict[str, Any]:
    (found,) = fields(said, EventKind.RESULT)
    return found


def allow(_: Asked) -> Answer:
    return Answer(allow=True)


def test_a_plain_answer_and_its_instructions(place: Place, agent: Driven) -> None:
    said = agent.turn("say hello")
    assert result(said) == {"status": "completed", "text": HELLO}
    assert fields(said, EventKind.STARTED)[0]["version"]
    assert fields(said, EventKind.USAGE)[0]["input_tokens"] == 120
    assert "COLLEAGUES" in place.last_request


def test_a_tool_call_that_is_allowed(place: Place, agent: Driven) -> None:
    agent.decide = allow
    said = agent.turn("RUN:[echo hi > a.txt; cat a.txt]")
    (asked,) = [item for item in said if isinstance(item, Asked)]
    assert (asked.tool, asked.input["command"]) == ("execute", "echo hi > a.txt; cat a.txt")
    assert [r["status"] for r in fields(said, EventKind.TOOL_RESULT)] == ["ok"]
    assert (place.folder / "work" / "a.txt").read_text() == "hi\n"
    assert "hi" in result(said)["text"]


def test_a_tool_call_that_is_denied(place: Place, agent: Driven) -> None:
    agent.decide = lambda asked: Answer(allow=False)
    said = agent.turn("RUN:[touch denied.txt]")
    assert [r["status"] for r in fields(said, EventKind.TOOL_RESULT)] == ["denied"]
    assert not (place.folder / "work" / "denied.txt").exists()


def test_an_edit_is_asked_with_its_diff(place: Place, agent: Driven) -> None:
    agent.decide = allow
    file = place.folder / "work" / "new.txt"
    said = agent.turn(f"EDIT:[{file}]=[some text]")
    (asked,) = [item for item in said if isinstance(item, Asked)]
    assert asked.tool == "edit"
    assert "+some text" in asked.input["diff"]
    assert file.read_text() == "some text"


def test_an_interrupt_in_a_tool_in_a_question_and_in_the_model(place: Place, agent: Driven) -> None:
    agent.decide = allow
    agent.begin("RUN:[echo on > on.txt; sleep 300]")
    agent.until(EventKind.TOOL_CALL)
    agent.interrupt()
    said = agent.until(EventKind.RESULT)
    assert result(said)["status"] == "interrupted"
    agent.decide = lambda asked: None
    agent.begin("RUN:[sleep 301]")
    agent.until(Asked)
    agent.interrupt()
    said = agent.until(EventKind.RESULT)
    assert [item for item in said if isinstance(item, Withdrawn)]
    assert [r["status"] for r in fields(said, EventKind.TOOL_RESULT)] == ["interrupted"]
    place.model.hold()
    agent.begin("SLOW SAY:[never]")
    assert place.model.waiting.wait(60)
    agent.interrupt()
    assert result(agent.until(EventKind.RESULT))["status"] == "interrupted"
    place.model.go.set()


def test_a_failed_model_fails_the_turn_and_the_next_one_goes_on(agent: Driven) -> None:
    failed = result(agent.turn("FAIL:[401]"))
    assert failed["status"] == "failed"
    assert "scripted failure" in failed["reason"]
    assert result(agent.turn("say hello"))["text"] == HELLO


def test_a_session_goes_on_after_sigkill(place: Place) -> None:
    with place.running() as first:
        first.turn("say hello to the first run")
        first.kill()
    _minutes_later(place.folder / "home")
    with place.running(session=first.adapter.session) as second:
        said = second.turn("say hello again")
    assert fields(said, EventKind.STARTED)[0]["resumed"]
    assert result(said)["text"] == HELLO  # and not what was said before
    assert "to the first run" in place.last_request


def _minutes_later(home: Path) -> None:
    """Gemini CLI 0.61 cannot load a session that began in the same minute: that stands in its file's name."""
    for file in home.glob(".gemini/tmp/*/chats/session-*.jsonl"):
        file.rename(file.with_name(f"session-2026-01-01T00-00-{file.name.rpartition('-')[2]}"))


def test_started_for_each_turn_in_one_session(place: Place) -> None:
    with place.running(place.name, autonomous=True) as agent:
        said = agent.turn("RUN:[echo once > once.txt; cat once.txt]")
        assert result(said)["status"] == "completed"
        assert (place.folder / "work" / "once.txt").read_text() == "once\n"
        assert [r["status"] for r in fields(said, EventKind.TOOL_RESULT)] == ["ok"]
        _minutes_later(place.folder / "home")
        said = agent.turn("say hello")
        assert fields(said, EventKind.STARTED)[0]["resumed"]
        assert "once.txt" in place.last_request
        assert result(said) == {"status": "completed", "text": HELLO}
