"""A person's desk: real clients in terminals, connected to a real post room, with a fake model behind them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.agents import hand_installed
from tests.agents.programs import CLAUDE, CODEX, NODE, installed
from tests.connect.clients.terminal import DOWN, ENTER, ERASE, Terminal
from tests.connect.conftest import Connected
from tests.e2e.conftest import DEADLINE, PostRoom, gone, until
from tests.fakes.model.server import FakeModel, Request
from tests.workspaces.bench import QUIET, git

T = TypeVar("T")

KEY = "sk-ant-api03-" + "x" * 80


class Desk(Connected):
    """A person with a home of their own, who connects clients by the command.

    Attributes:
        home: the person's.
        model: of all clients.
    """

    def __init__(self, room: PostRoom, home: Path, model: FakeModel, *clients: str) -> None:
        self.room = room
        self.home = home
        self.model = model
        self.clients = []
        self.env = {
            **room.env,
            **QUIET,
            "HOME": str(home),
            "SHELL": "/bin/sh",
            "POSTROOM_CONNECT_LINGER": "30",
        }
        self.open_windows: list[Window] = []
        for client in clients:
            self.connect(client)
        self.folder = home / ".local" / "share" / "postroom" / "connect"
        self.hook = self.folder / "hook"

    def connect(self, client: str, *words: str) -> str:
        """Connect a client; what the command says."""
        return self.command("connect", client, "--yes", *words)

    def command(self, *words: str) -> str:
        """A command of the person; its output."""
        done = subprocess.run(
            self.room.command(*words), env=self.env, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def set_up_codex(self, *folders: Path) -> None:
        """What a person has set up in Codex before it is connected."""
        trusted = "".join(f'[projects."{folder}"]\ntrust_level = "trusted"\n' for folder in folders)
        file = self.home / ".codex" / "config.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            f"""# the person's own
model = "gpt-5.1-codex"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.fake]
name = "fake"
base_url = "{self.model.url}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"

{trusted}"""
        )

    def project(self, name: str) -> Path:
        """A repository."""
        place = self.home / name
        if not place.exists():
            place.mkdir()
            git(place, "init", "--quiet")
        return place

    def asked(self, text: str) -> list[Request]:
        """The requests at the model in whose conversation a text stands."""
        written = json.dumps(text)[1:-1]
        return [one for one in self.model.asked() if written in json.dumps(one.body)]

    def holds(self) -> None:
        """Wait until the model holds an answer back."""
        assert self.model.waiting.wait(DEADLINE), "no request is held"

    def found(self, text: str) -> dict[str, Any]:
        """The newest message that has a text."""
        with self.room.client() as client:
            answer = client.transport.call("GET", "/v1/messages", params={"text": text})
        return answer["messages"][0]

    def reaches(self, message: str, state: str) -> None:
        """Wait for the state of a message."""
        until(lambda: self.state(message) == state)

    def waits(self, nick: str, number: int = 1) -> None:
        """Wait until mail of a session is there and not handed over."""
        until(lambda: self.sessions().get(nick, {}).get("waiting", 0) >= number)

    def close(self) -> None:
        """Close all windows, and end `run`."""
        for window in list(self.open_windows):
            window.close()
        super().close()


class Window:
    """A client in a terminal of its own.

    Attributes:
        sign: before the line for prompts.
        nick: address of its session.
    """

    sign = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"

    def __init__(self, desk: Desk, folder: Path) -> None:
        self.desk = desk
        self.folder = folder
        self.nick = ""
        self.terminal: Terminal
        desk.open_windows.append(self)

    @property
    def row(self) -> dict[str, Any]:
        """How its session stands with `run`."""
        return self.desk.sessions().get(self.nick, {})

    def until(self, find: Callable[[], T], what: str) -> T:
        """What `find` finds; a failure shows the window."""
        try:
            return until(find)
        except AssertionError:
            raise AssertionError(f"{what}; the window shows:\n{self.terminal.text}") from None

    def say(self, text: str) -> None:
        """A prompt of the person: it is typed, and Enter is pressed until it has left the line."""
        words = "".join(text.split())
        # A key right after Esc is taken as one with Alt: then it is typed again.
        self.terminal.press(text)
        with suppress(AssertionError):
            until(lambda: words in self.line, deadline=5)
        if words not in self.line:
            self.terminal.press(f"{ERASE}{text}")
        self.until(lambda: words in self.line, f"{text!r} is not in the line")
        self.press_until(ENTER, lambda: words not in self.line)

    def press_until(self, key: str, shown: Callable[[], bool]) -> None:
        """Press a key that may come too early for the program, until something is shown."""
        while not shown():
            self.terminal.press(key)
            with suppress(AssertionError):
                until(shown, deadline=1)

    @property
    def line(self) -> str:
        """What stands in the line for prompts and below it, without blanks."""
        return "".join(self.terminal.text.rpartition(self.sign)[2].split())

    def is_idle(self) -> bool:
        """Whether its turn has ended."""
        return self.row.get("state") == "idle"

    def idle(self) -> None:
        """Wait for the end of its turn."""
        self.until(self.is_idle, f"@{self.nick} is not idle")

    def turn(self, text: str) -> None:
        """A whole turn."""
        before = len(self.desk.asked(text))
        self.say(text)
        self.until(lambda: len(self.desk.asked(text)) > before, f"nobody is asked {text!r}")
        self.idle()

    def at_work(self) -> Path:
        """Have it run a tool until the file that is returned is there."""
        begun, end = self.folder / "begun", self.folder / "end"
        begun.unlink(missing_ok=True)
        end.unlink(missing_ok=True)
        self.say("RUN:[touch begun; until test -e end; do sleep 0.05; done] SLOW SAY:[done]")
        self.until(begun.exists, "its tool has not begun")
        return end

    def close(self) -> None:
        """Close the window."""
        if self in self.desk.open_windows:
            self.desk.open_windows.remove(self)
            self.terminal.close()


def registered(window: Window, pid: int) -> str:
    """The nick of the session that has this process, once there is one."""

    def found() -> str:
        rows = window.desk.sessions().values()
        return next((row["nick"] for row in rows if row["pid"] == pid), "")

    return window.until(found, "no session has registered")


class Claude(Window):
    """Claude Code; without `address` in a home where it is not connected.

    Attributes:
        permissions: of the person's settings.
    """

    permissions: Mapping[str, Any] = {"allow": ["Bash", "mcp__plugin_postroom_postroom"]}

    def __init__(self, desk: Desk, folder: Path, *words: str, address: bool = True) -> None:
        super().__init__(desk, folder)
        trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        state = _read(desk.home / ".claude.json")
        state |= {"hasCompletedOnboarding": True, "theme": "dark", "numStartups": 5}
        state |= {"hasSeenAutoDefaultNotice": True, "hasResetAutoModeOptInForDefaultOffer": True}
        state["customApiKeyResponses"] = {"approved": [KEY[-20:]], "rejected": []}
        state.setdefault("projects", {})[str(folder)] = trusted
        _write(desk.home / ".claude.json", state)
        chosen = {"permissions": self.permissions}
        _write(desk.home / ".claude" / "settings.json", chosen)
        self.open(*words, address=address)

    @property
    def env(self) -> dict[str, str]:
        """The environment of the program."""
        return self.desk.env | {
            "ANTHROPIC_BASE_URL": self.desk.model.url,
            "ANTHROPIC_API_KEY": KEY,
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def open(self, *words: str, address: bool = True) -> None:
        """Start the program, and wait until its session has an address."""
        self.terminal = Terminal([str(installed(CLAUDE)), *words], self.folder, self.env)
        if address:
            self.nick = registered(self, self.terminal.process.pid)
        self.terminal.shows(self.sign)

    def unwatched(self, prompt: str) -> str:
        """What a run without a terminal prints."""
        words = [installed(CLAUDE), "-p", prompt]
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return done.stdout

    @property
    def session(self) -> str:
        """The client's id of its session."""
        return self._says["sessionId"]

    def is_idle(self) -> bool:
        """Whether its turn has ended, as it says itself."""
        return self._says.get("status") == "idle"

    @property
    def _says(self) -> dict[str, Any]:
        file = self.desk.home / ".claude" / "sessions" / f"{self.terminal.process.pid}.json"
        return _read(file)


class Codex(Window):
    """Codex; its session begins with its first prompt."""

    sign = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"

    def __init__(self, desk: Desk, folder: Path, *words: str) -> None:
        super().__init__(desk, folder)
        self.config = desk.home / ".codex" / "config.toml"
        self.open(*words)

    def open(self, *words: str) -> None:
        """Start the program, and trust its hooks if it asks."""
        before = self.config.read_text()
        program = installed(CODEX)
        path = f"{program.parent}{os.pathsep}{self.desk.env['PATH']}"
        env = self.desk.env | {"FAKE_KEY": "none", "PATH": path}
        self.terminal = Terminal([str(program), *words], self.folder, env)
        if "trusted_hash" not in before:
            self.terminal.shows("Trust all")
            self.press_until(DOWN, lambda: f"{self.sign} 2. Trust all" in self.terminal.text)
            self.press_until(ENTER, lambda: "Trust all" not in self.terminal.text)
        self.terminal.shows(self.sign)

    def begin(self, text: str) -> None:
        """The first turn, with which the session gets its address."""
        known = set(self.desk.sessions())
        self.say(text)
        self.nick = until(lambda: next(iter(set(self.desk.sessions()) - known), ""))
        self.until(lambda: self.desk.asked(text), f"nobody is asked {text!r}")
        self.idle()

    def close(self) -> None:
        """Close the window, and end the daemon."""
        super().close()
        self.kill()

    def kill(self) -> None:
        """SIGKILL the program, and the daemon that all windows of this home share."""
        self.terminal.close()
        home = f"HOME={self.desk.home}".encode()
        for pid in _processes("codex"):
            if home in _environment(pid):
                os.kill(pid, signal.SIGKILL)
                until(lambda pid=pid: gone(pid))


class ByHand(Window):
    """Gemini CLI or OpenCode, as somebody installed it."""

    def __init__(self, desk: Desk, name: str, folder: Path) -> None:
        super().__init__(desk, folder)
        program = hand_installed.installed(name)
        env = desk.env | hand_installed.variables(name, desk.home, desk.model)
        env["PATH"] = f"{NODE.parent}{os.pathsep}{env['PATH']}"
        words = ("--approval-mode=yolo",) if name == "gemini" else ()
        if name == "gemini":
            chosen = {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}}
            _write(desk.home / ".gemini" / "settings.json", {"security": chosen})
        self.terminal = Terminal([program, *words], folder, env)
        self.terminal.shows({"gemini": "Type your message", "opencode": "Ask anything"}[name])

    def begin(self, text: str) -> None:
        """The first turn; by its end the session has an address."""
        self.say(text)
        self.nick = self.until(lambda: next(iter(self.desk.sessions()), ""), "no session")
        self.idle()

    def say(self, text: str) -> None:
        """A prompt of the person, for which the model is asked."""
        before = len(self.desk.model.asked())
        self.terminal.press(text)
        self.terminal.shows(text[:20])
        self.press_until(ENTER, lambda: len(self.desk.model.asked()) > before)


def _processes(name: str) -> list[int]:
    """Processes whose program has this name."""
    found = Path("/proc").glob("[0-9]*")
    return [int(place.name) for place in found if _program(place) == name]


def _program(place: Path) -> str:
    try:
        return (place / "exe").readlink().name
    except OSError:
        return ""


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.exists() else {}


def _write(file: Path, value: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))
