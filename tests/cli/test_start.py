"""What starting the command line costs and loads."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from postroom.cli.root import SUMMARIES, root
from tests.cli.conftest import environment
from tests.client.standin import BOB, ME, Standin, listed, task

HEAVY = {
    "a2a",
    "alembic",
    "anyio",
    "asyncio",
    "cryptography",
    "fastapi",
    "google.protobuf",
    "http.client",
    "httpx2",
    "mcp",
    "nats",
    "pydantic",
    "rich",
    "sqlalchemy",
    "ssl",
    "starlette",
    "structlog",
    "textual",
    "uvicorn",
}
OWN = {
    "postroom",
    "postroom.cli",
    "postroom.cli.root",
    "postroom.cli.options",
    "postroom.errors",
    "postroom.inherited",
    "postroom_a2a",
    "postroom_a2a.errors",
}

PROBE = """
import sys
from postroom.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print("status", ended.code, file=sys.stderr)
print(*sorted(sys.modules), sep="\\n", file=sys.stderr)
"""


def modules(*arguments: str, **env: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )
    return set(done.stderr.split("\n"))


@pytest.mark.parametrize("option", ["--help", "-h", "--version"])
def test_help_loads_click_and_nothing_heavier(option: str):
    loaded = modules(option)
    assert "status 0" in loaded
    assert not loaded & HEAVY
    build = {"postroom.build"} if option == "--version" else set()
    assert {name for name in loaded if name.startswith("postroom")} == OWN | build


def test_without_a_command_in_a_pipe_the_help_comes_and_no_screen_is_loaded():
    loaded = modules()
    assert "status 2" in loaded
    assert not loaded & HEAVY


def test_help_of_every_command_loads_nothing_heavy():
    code = """
import sys
from postroom.cli.root import SUMMARIES, root
for name in SUMMARIES:
    root.get_command(None, name)
print(*sys.modules, sep="\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )
    loaded = set(done.stdout.split("\n"))
    assert "postroom.cli.commands.chat" in loaded
    assert not loaded & HEAVY


def test_a_command_without_a_post_room_does_not_load_the_http_library(tmp_path: Path):
    loaded = modules("--state", str(tmp_path), "status")
    assert "status 3" in loaded
    assert not loaded & HEAVY


def completions(*words: str, state: str = "") -> list[str]:
    """What bash is offered for the last of `words`."""
    done = subprocess.run(
        [sys.executable, "-m", "postroom"],
        env=environment(
            _POSTROOM_COMPLETE="bash_complete",
            COMP_WORDS=shlex.join(("postroom", *words)),
            COMP_CWORD=str(len(words)),
            POSTROOM_STATE=state,
        ),
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert done.stderr == ""
    return [line.removeprefix("plain,") for line in done.stdout.split()]


def test_the_shell_completes_commands():
    assert completions("s") == ["status", "spawn", "stop", "send", "search"]
    tasks = ["answer", "apply", "cancel", "get", "list", "pushes", "retry", "show"]
    assert completions("task", "") == [*tasks, "sync", "watch"]
    assert completions("config", "set", "http.") == [
        "http.port",
        "http.listen",
        "http.public_url",
        "http.trusted_proxies",
    ]


def test_the_shell_completes_agents_and_tasks(standin: Standin, tmp_path: Path):
    agents = [listed(BOB), listed(BOB, nick="carl"), listed(ME)]
    standin.answer("GET /v1/agents", {"agents": agents})
    standin.answer("GET /v1/tasks", {"tasks": [task(), task(id="ff" * 16)]})
    here = str(tmp_path)
    assert completions("delegate", "", state=here) == ["@bob", "@carl"]
    assert completions("delegate", "@b", state=here) == ["@bob"]
    assert completions("delegate", "@", "b", state=here) == ["@bob"]  # bash splits at an @
    assert completions("delegate", "@bob", "b", state=here) == []
    assert completions("task", "list", "--worker", "c", state=here) == ["@carl"]
    assert completions("keys", "create", "--for", "@c", state=here) == ["@carl"]
    assert completions("task", "show", "ab", state=here) == ["ab12cd34"]


def test_without_a_post_room_the_shell_is_offered_nothing(tmp_path: Path):
    assert completions("delegate", "@b", state=str(tmp_path)) == []
    assert completions("task", "show", "a", state=str(tmp_path)) == []


def test_each_command_has_its_module_and_its_name():
    for name in SUMMARIES:
        found = root.get_command(click.Context(root), name)
        assert isinstance(found, click.Command)
        assert found.name == name
        assert found.help


def leaves() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for name in SUMMARIES:
        top = root.get_command(click.Context(root), name)
        assert top is not None
        group = top.commands.items() if isinstance(top, click.Group) else [("", top)]
        found += [(f"{name} {sub}".strip(), leaf) for sub, leaf in group]
    return found


def test_each_command_takes_the_post_room_after_its_name():
    for name, leaf in leaves():
        if name not in {"login", "logout", "join", "help", "version", "mcp", "disconnect"}:
            assert {"--state", "--url"} <= {said for given in leaf.params for said in given.opts}, (
                name
            )


NO_ANSWER = {"help", "up", "down", "chat", "blob get", "mcp"}


@pytest.mark.requirement("cli-words-expected")
def test_each_command_that_answers_can_answer_in_json():
    for name, leaf in leaves():
        has_json = "as_json" in {parameter.name for parameter in leaf.params}
        assert has_json is (name not in NO_ANSWER), name
