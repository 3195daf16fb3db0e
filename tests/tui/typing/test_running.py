"""Leaving the screen, and what is left on the terminal when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.app import App

from postroom.client.http import AsyncClient
from postroom.tui.app import PostroomApp
from postroom.tui.running import run
from tests.client.standin import Standin


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    standin = Standin()
    standin.announce(tmp_path)
    yield tmp_path
    standin.close()


def test_leaving_says_that_everything_goes_on(
    surroundings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PostroomApp, "run", lambda *_, **__: None)

    assert run(AsyncClient.at(surroundings, "")) == 0

    said = "postroom: left; everything goes on (postroom down ends it)\n"
    assert capsys.readouterr().out == said


@pytest.mark.requirement("screen-opens")
def test_a_failure_of_the_screen_is_one_line_and_a_file_with_the_details(
    surroundings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(app: PostroomApp, **_: object) -> None:
        app._handle_exception(_raised(KeyError("a \x1b[2J key")))

    monkeypatch.setattr(PostroomApp, "run", fail)

    assert run(AsyncClient.at(surroundings, "")) == 1

    told = capsys.readouterr()
    log = surroundings / "cache" / "postroom" / "screen.log"
    assert told.out == ""
    assert "\x1b" not in told.err
    assert "postroom: the screen failed: KeyError" in told.err
    assert str(log) in told.err
    assert len(told.err.splitlines()) == 2
    assert "Traceback" in log.read_text()


@pytest.mark.requirement("screen-opens")
@pytest.mark.parametrize("told", [True, False])
def test_an_error_inside_textual_is_one_line_too_and_no_value_of_a_variable_is_shown(
    surroundings: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    told: bool,
) -> None:
    def fail(_: PostroomApp) -> None:
        secret = "a-secret-value"
        raise KeyError(len(secret))

    monkeypatch.setattr(PostroomApp, "on_mount", fail)
    monkeypatch.setattr(PostroomApp, "run", lambda app, **_: App.run(app, headless=True))
    if not told:  # as if Textual asked for errors in another way
        monkeypatch.delattr(PostroomApp, "_handle_exception")

    assert run(AsyncClient.at(surroundings, "")) == 1

    said = "".join(capfd.readouterr())
    assert f"the screen failed: {'KeyError: 14' if told else 'no details are known'}" in said
    assert "a-secret-value" not in said
    assert "Traceback" not in said


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except KeyError as found:
        return found
