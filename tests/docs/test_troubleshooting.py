"""docs/troubleshooting.md: each symptom is made for real, and the page's commands say what the page promises."""

from __future__ import annotations

import re
import shutil
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from postroom.client.http import Client
from tests.docs.pages import ROOT, Command, blocks, matches
from tests.docs.shell import DEADLINE, Shell, in_checkout
from tests.e2e.conftest import until
from tests.manifest.headings import anchors

PAGE = "docs/troubleshooting.md"

TASK, MESSAGE, APPROVAL = "3f0c…", "5b1f…", "598237fb"
"""On the page: the ids of a task, of a message and of an approval."""

PIN = "2468"

Cleared = Generator[None]
"""What is cleared up when the page's commands are typed."""

CODER = ROOT / "tests" / "fakes" / "coder.py"

TEMPLATES = {
    "app": 'files = ["coder.py"]\nadapter = "claude"\ncommand = ["python3", "/opt/agent/coder.py"]\n'
    "[sidecar]\nstall_after = 1",
    "count": 'files = ["count.py"]\ncommand = ["python3", "/opt/agent/count.py"]',
    "crash": 'command = ["python3", "-c", "import nowhere"]',
    "fetch": 'files = ["fetch.py"]\nadapter = "text"\ncommand = ["python3", "/opt/agent/fetch.py", "{urls}"]\n'
    '[overrides]\nurls = ""\negress = ["http://{host}"]\nhost = "127.0.0.1:1"\n'
    'credentials = ["model"]',
}
"""The workers of the page, below `[workstation]`."""

PROGRAMS = {
    "count": "import sys\nfor line in sys.stdin:\n    print('Working on it ...', flush=True)\n",
    "fetch": "import os, sys, urllib.error, urllib.request\n"
    "for place in sys.stdin.read().split():\n"
    "    try:\n"
    "        urllib.request.urlopen(os.environ['POSTROOM_EGRESS'] + '/' + place)\n"
    "    except urllib.error.HTTPError as error:\n"
    "        print(error.code)\n",
}


class Refusing(BaseHTTPRequestHandler):
    """A model's host that accepts no key."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class Desk:
    """The reader of the page: a terminal, the post room that runs there, and what the page's names stand for."""

    def __init__(self, shell: Shell, host: str) -> None:
        self.shell = shell
        self.host = host
        self.home = Path(shell.run("echo ~").strip())
        self.client = Client.at(self.home / ".local/state/postroom")
        self.names: dict[str, str] = {}

    @property
    def port(self) -> str:
        """Where the API listens."""
        return self.client.server.url.rpartition(":")[2]

    def worker(self, nick: str, *words: str) -> None:
        """Have this worker of the page, and let it run."""
        known = {each["nick"]: each["state"] for each in self.client.workers()}
        if nick not in known:
            head = f'[worker]\nname = "{nick}"\ncancel_grace = 1\n[workstation]\n'
            (self.shell.folder / f"{nick}.toml").write_text(head + TEMPLATES[nick])
            if nick in PROGRAMS:
                (self.shell.folder / f"{nick}.py").write_text(PROGRAMS[nick])
            said = self.shell.run(f"postroom spawn {nick}.toml {' '.join(words)}", status=None)
            assert f"@{nick}" in said, said
        elif known[nick] == "stopped":
            self.shell.run(f"postroom restart {nick}")

    def app(self) -> None:
        """Have @app, and let it be idle."""
        if not (self.home / "src/app").exists():
            shutil.copy(CODER, self.shell.folder)
            self.shell.run("git init -q -b main ~/src/app && cd ~/src/app")
            self.shell.run("git config user.name a && git config user.email a@b.example")
            self.shell.run("git commit -q --allow-empty -m first && cd - > /dev/null")
        self.worker("app", "--workspace", "~/src/app")
        until(lambda: self.state("app") == "idle", DEADLINE)

    def state(self, nick: str) -> str:
        return self.client.worker(nick)["state"]

    def delegate(self, nick: str, text: str) -> str:
        """Give a task; its id."""
        task = self.client.delegate(text, to=f"@{nick}")["id"]
        self.names[TASK] = task
        return task

    def asked(self) -> None:
        """Have @app ask whether it may make a file."""
        self.app()
        self.delegate("app", "RUN:[touch made-by-the-agent]")
        (waiting,) = until(self.client.approvals, DEADLINE)
        self.names[APPROVAL] = waiting["id"][:8]

    def worked(self, command: str) -> None:
        """Have @app do this to the end."""
        self.shell.run("postroom autonomy @app all")
        task = self.delegate("app", f"RUN:[{command}]")
        until(lambda: self.client.task(task)["final"], DEADLINE)
        self.shell.run("postroom autonomy @app ask")

    def until_printed(self, command: str, word: str) -> None:
        """Type it until it says so."""
        until(lambda: word in self.shell.run(command, status=None), DEADLINE)


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A reader with a post room that may reach a model's host."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as host, in_checkout() as shell:
        threading.Thread(target=host.serve_forever, args=(0.05,), daemon=True).start()
        place = f"127.0.0.1:{host.server_port}"
        shell.run(". .venv/bin/activate")
        shell.run(
            f"POSTROOM_EGRESS_ALLOW_PRIVATE={place} postroom up --detach --port 0 --nats-port 0"
        )
        reader = Desk(shell, place)
        with reader.client:
            yield reader
        host.shutdown()


# ── the symptoms, by the headings of the page ───────────────────────────────────────────────────────


def stalled(desk: Desk) -> None:
    desk.app()
    desk.delegate("app", "SILENT")
    until(lambda: desk.state("app") == "stalled", DEADLINE)


def working(desk: Desk) -> None:
    desk.worker("count")
    task = desk.delegate("count", "How many words?")
    until(lambda: desk.client.task(task)["state"] == "working", DEADLINE)


def no_json(desk: Desk) -> None:
    working(desk)
    desk.until_printed("postroom status", "no JSON")


def failed(desk: Desk) -> None:
    desk.worker("crash")
    until(lambda: desk.state("crash") == "failed", DEADLINE)


def fetched(desk: Desk, *places: str) -> None:
    """Have @fetch ask for these."""
    if "model" not in desk.shell.run("postroom credential list"):
        desk.shell.run(f"postroom credential add model --host http://{desk.host}", "a secret\n")
    desk.worker("fetch", "--set", f"host={desk.host}")
    sent = desk.client.send("@fetch", " ".join(places))
    desk.client.wait(sent["id"], "answered", DEADLINE)


def key_refused(desk: Desk) -> None:
    fetched(desk, f"http/{desk.host}/v1/messages")
    desk.names["--host api.example.com"] = f"--host http://{desk.host}"
    desk.names["api.example.com"] = desk.host
    desk.until_printed("postroom alerts", "refuses the credential")


def host_refused(desk: Desk) -> None:
    fetched(desk, "https/other.example/", "http/127.0.0.1:9/")
    desk.until_printed("postroom audit --denied", "127.0.0.1")


def no_sandbox(desk: Desk) -> Cleared:
    desk.shell.run("export POSTROOM_SANDBOX=bubblewrap POSTROOM_BWRAP=/nonexistent")
    yield
    desk.shell.run("unset POSTROOM_SANDBOX POSTROOM_BWRAP")


def branch_held(desk: Desk) -> None:
    desk.app()
    desk.worked("touch made-by-the-agent")
    desk.until_printed("git -C ~/src/app branch --list", "postroom/app")
    desk.shell.run("git -C ~/src/app switch -q postroom/app")
    desk.worked("touch more")


def behind(desk: Desk) -> None:
    desk.app()
    desk.shell.run("git -C ~/src/app commit -q --allow-empty -m newer")
    until(lambda: "1 behind main" in desk.shell.run("postroom diff @app --stat"), DEADLINE)


def not_seen(desk: Desk) -> None:
    desk.worker("count")
    desk.client.stop("count")
    desk.names[MESSAGE] = desk.client.send("@count", "are you there?")["id"]


def approval(desk: Desk) -> None:
    desk.asked()


def pin(desk: Desk) -> Cleared:
    desk.asked()
    desk.client.set_pin(PIN, "")
    (desk.home / "pin").write_text(PIN + "\n")
    (desk.home / "pin").chmod(0o600)
    yield
    desk.client.set_pin("", PIN)


@contextmanager
def other_state(desk: Desk) -> Generator[Path]:
    """A state folder of its own, which commands are about."""
    folder = desk.home / "other"
    folder.mkdir(mode=0o700, exist_ok=True)
    desk.shell.run(f"export POSTROOM_STATE={folder}")
    yield folder
    desk.shell.run("unset POSTROOM_STATE")


def port_taken(desk: Desk) -> Cleared:
    desk.names["4280"] = desk.port
    with other_state(desk):
        yield


def forgotten(desk: Desk) -> None:
    desk.shell.run("postroom --state ~/demo up --detach --port 0 --nats-port 0")


def unmade() -> Cleared:
    """Nothing is to be cleared up."""
    yield


def nothing(_: Desk) -> None:
    """The page's commands say how it stands on a sound machine, too."""


def no_login(desk: Desk) -> None:
    desk.names["box.example:4281"] = f"127.0.0.2:{desk.port}"


def differing(desk: Desk) -> Cleared:
    """The command is of another commit."""
    folder = desk.home / "newer"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        f"import postroom.build\npostroom.build.of_checkout = lambda root: '{'f' * 40}'\n"
    )
    desk.shell.run(f"export PYTHONPATH={folder}")
    yield
    desk.shell.run("unset PYTHONPATH")


def newer_database(desk: Desk) -> Cleared:
    with other_state(desk) as folder:
        with sqlite3.connect(folder / "accounts.db") as database:
            database.execute("CREATE TABLE alembic_version (version_num TEXT)")
            database.execute("INSERT INTO alembic_version VALUES ('9999')")
        (folder / "accounts.db").chmod(0o600)
        yield


SYMPTOMS: dict[str, Callable[[Desk], Cleared | None]] = {
    "A worker is stalled": stalled,
    "A task is working for ever": working,
    "A program printed what is no JSON": no_json,
    "A worker has failed": failed,
    "A key is refused: 401 or 403": key_refused,
    "A host is refused": host_refused,
    "There is no sandbox": no_sandbox,
    "The branch has not moved": branch_held,
    "A worker is behind my branch": behind,
    "A message is accepted, and nobody has seen it": not_seen,
    "An approval hangs": approval,
    "A PIN is asked for": pin,
    "A port is taken": port_taken,
    "A forgotten post room still runs": forgotten,
    "The disk is full": nothing,  # tests/e2e/test_full_disk.py fills one
    "A login from another machine fails": no_login,
    "Command and post room differ": differing,
    "The database is newer": newer_database,
}


@pytest.mark.requirement("docs-commands-run")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("heading", SYMPTOMS)
def test_the_commands_for_a_symptom_say_what_the_page_promises(desk: Desk, heading: str) -> None:
    made = SYMPTOMS[heading](desk) or unmade()
    next(made)
    try:
        for block in blocks(PAGE):
            for command in block.commands if block.section == heading else []:
                follow(desk, command)
    finally:
        next(made, None)


def test_every_section_of_the_page_is_a_symptom_that_a_test_makes() -> None:
    assert list(dict.fromkeys(block.section for block in blocks(PAGE))) == list(SYMPTOMS)
    assert all(
        re.search(rf"\(#{anchor}\)", (ROOT / PAGE).read_text())
        for anchor in anchors((ROOT / PAGE).read_text()) - {"troubleshooting"}
    )


def follow(desk: Desk, command: Command) -> None:
    """Type a command, and find what the page shows below it, line by line, in what it prints."""
    given = "a secret\n" if "credential add" in command.words else ""
    words = in_place(desk, command.words, whole=True)
    refused = any(line.startswith(("postroom: ", "missing ")) for line in command.prints)
    printed = desk.shell.run(words, given, status=None if refused else 0)
    for shown in command.prints:
        pattern = in_place(desk, shown, whole=False)
        assert any(matches(pattern, line) for line in printed.splitlines()), f"{words}: {printed}"


def in_place(desk: Desk, text: str, *, whole: bool) -> str:
    """The page's text with what its names stand for; what commands print has short ids."""
    for shown, meant in desk.names.items():
        short = shown.endswith("…") and not whole
        text = text.replace(shown, f"{meant[:8]}…" if short else meant)
    return text
