"""What a person with a lesser key can have of the machine: nothing but what the operator has opened."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import pytest

from postroom.control import bodies
from postroom.protocol.principal import Scope
from postroom.protocol.template import _SHAPE
from postroom.sandbox.port import Level
from postroom.sandbox.select import CHOICES, stated_level
from tests.e2e.conftest import PostRoom, running_room, until
from tests.workspaces.bench import git, repository

PLAIN = '[worker]\nname = "{nick}"\n[workstation]\ncommand = ["python3", "-c", "import time; time.sleep(900)"]\n'
ORGS = ("default", "acme")


@dataclass
class Site:
    room: PostRoom
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    """By organisation and name."""

    def call(
        self, who: str, method: str, path: str, body: Any = None, org: str = "acme"
    ) -> httpx2.Response:
        key = self.room.server["token"] if who == "operator" else self.keys[org, who]
        prefix = "" if org == "default" else f"/orgs/{org}"
        return httpx2.request(
            method,
            f"{self.room.server['url']}{prefix}{path}",
            headers={"Authorization": f"Bearer {key}"},
            json=body,
            timeout=30,
            verify=False,  # it is not TLS: reading all authorities takes longer than the request
        )

    def spawn(self, who: str, nick: str, text: str = "", org: str = "acme", **body: Any) -> Any:
        template = text or PLAIN.format(nick=nick)
        return self.call(
            who, "POST", "/v1/workers", {"template": template, "name": nick, **body}, org
        )

    def workers(self, org: str = "acme") -> list[str]:
        found = self.call("operator", "GET", "/v1/workers", org=org).json()["workers"]
        return [worker["nick"] for worker in found]

    @property
    def home(self) -> Path:
        return self.room.scratch


def settled(room: PostRoom) -> Site:
    """A second organisation, and in both people with the keys that there are."""
    site = Site(room)
    site.call("operator", "POST", "/v1/orgs", {"name": "acme"}, "default")
    people = {scope.value: [scope.value] for scope in Scope}
    people["olga"] = ["read", "send", "task", "operate"]
    people["every"] = [scope.value for scope in Scope]
    for org in ORGS:
        for nick, scopes in people.items():
            name = f"p-{nick}"
            made = site.call(
                "operator", "POST", "/v1/people", {"nick": name, "scopes": scopes}, org
            )
            assert made.status_code == 201, made.text
            site.keys[org, nick] = made.json()["key"]["key"]
    ssh = site.home / ".ssh"
    ssh.mkdir()
    (ssh / "id_ed25519").write_text("the key")
    (site.home / "open").mkdir()
    (site.home / "shut").mkdir()
    (site.home / "shut" / "run.sh").write_text("#!/bin/sh\n")
    (site.home / "shut" / "run.sh").chmod(0o755)
    return site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_room() as room:
        yield settled(room)


# ── what names a path or a wall ───────────────────────────────────────────────────────────────────


PATHS_AND_WALLS = {
    "SpawnBody": {"template", "files", "sandbox", "isolation", "set", "path", "workspace", "mode"},
    "RestartBody": {"template", "files"},
    "BackupBody": {"file"},
    "OpeningBody": {"folder", "mode", "wall"},
    "DiffBody": {"paths"},  # of the repository, behind `--`
    "CredentialBody": {"path"},  # of a URL
    "SessionBody": {"folder", "project"},  # of its client's machine, and only shown
    "HeardBody": {"folder"},
}
OTHER = {
    *("name", "project", "wait", "merge", "kind", "host", "header", "secret", "workers", "replace"),
    *("text", "parts", "subject", "thread", "to", "expects_reply", "expires_in", "key", "reply_to"),
    *("archived", "read"),
    *("ids", "state", "skill", "context", "force", "reason", "timeout", "seq", "id", "description"),
    *("metadata", "append", "last", "events", "run", "first", "type", "decision", "input"),
    *(
        "channel",
        "pin",
        "pattern",
        "old",
        "passphrase",
        "agent",
        "tool",
        "seconds",
        "scopes",
        "nick",
        "card",
        "public",
    ),
    *("url", "credential", "deadline", "stat", "autonomous", "undo", "rebase", "resolve", "task"),
    *("granter", "grantee", "grantee_id", "grants_only", "registration", "owner", "expires_at"),
    *("code", "uses", "invite", "display_name", "owner_email"),
    *("client", "version", "how", "autonomy", "branches", "large", "whole", "accept", "tree"),
}
"""Fields of bodies that name neither."""

OF_TEMPLATES = {
    "workstation": {"command", "mcps"},
    "compute": {"sandbox", "isolation", "read_only"},
}
OF_TEMPLATES_NOT = {
    "worker": {"name", "project", "description", "rerun", "attempts", "cancel_grace", "public"},
    "workstation": {
        *("adapter", "confirm", "patience", "window", "feed", "env", "files", "skills"),
        "instructions",
    },
    "compute": {"memory_mb", "processes", "cpu_percent", "disk_mb", "wall_seconds"},
}


def test_no_field_of_a_body_or_a_template_is_forgotten_here() -> None:
    for model in vars(bodies).values():
        if isinstance(model, type) and issubclass(model, bodies.Body):
            known = PATHS_AND_WALLS.get(model.__name__, set()) | OTHER
            left = set(model.model_fields) - known
            assert not left, f"{model.__name__}: does {left} name a path or a wall of the machine?"
    for table in ("worker", "workstation", "compute"):
        known = OF_TEMPLATES.get(table, set()) | OF_TEMPLATES_NOT[table]
        left = set(_SHAPE[table] or {}) - known
        assert not left, f"[{table}]: does {left} name a path or a wall of the machine?"


def with_compute(nick: str, line: str) -> str:
    return f"{PLAIN.format(nick=nick)}[compute]\n{line}\n"


def cases(site: Site, nick: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Bodies of a spawn, each with one thing of the machine that is not open."""
    plain = {"template": PLAIN.format(nick=nick), "name": nick}
    weaker = [n for n in CHOICES if (stated := stated_level(n)) and stated is not Level.ENFORCED]
    for name in weaker:
        yield f"sandbox {name}", plain | {"sandbox": name}
        for level in ("partial", "none"):
            text = with_compute(nick, f'sandbox = "{name}"')
            yield (
                f"template's sandbox {name}, {level}",
                plain | {"template": text, "isolation": level},
            )
    for level in ("partial", "none"):
        yield f"isolation {level}", plain | {"isolation": level}
        text = with_compute(nick, f'isolation = "{level}"')
        yield f"template's isolation {level}", plain | {"template": text}
    shut, ssh = site.home / "shut", site.home / ".ssh"
    for place in (
        shut,
        ssh,
        site.home,
        site.room.state,
        Path("/etc"),
        Path("/proc"),
        site.home / "no",
    ):
        for mode in ("", "worktree", "copy", "direct"):
            yield f"{mode} {place}", plain | {"workspace": str(place), "mode": mode}
        text = with_compute(nick, f'read_only = ["{place}"]')
        yield f"read_only {place}", plain | {"template": text}
        text = with_compute(nick, 'read_only = ["{place}"]') + '[overrides]\nplace = "/usr/share"\n'
        yield f"set {place}", plain | {"template": text, "set": {"place": str(place)}}
    program = f'command = ["{shut}/run.sh"]'
    text = f'[worker]\nname = "{nick}"\n[workstation]\n{program}\n'
    yield "program", plain | {"template": text}
    text = f"{PLAIN.format(nick=nick)}[workstation.mcps.tool]\n{program}\n"
    yield "program of an MCP server", plain | {"template": text}


@pytest.mark.requirement("never-shown")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("org", ORGS)
@pytest.mark.parametrize("who", [*(scope.value for scope in Scope), "olga", "every"])
def test_no_lesser_key_gives_a_worker_anything_of_the_machine(
    site: Site, who: str, org: str
) -> None:
    before = site.workers(org)
    # Scopes that start no worker at all are refused for that: some cases of each kind do.
    each = 1 if who in ("olga", "every") else 9
    for what, body in islice(cases(site, "greedy"), 0, None, each):
        answer = site.call(who, "POST", "/v1/workers", body, org)
        assert answer.status_code == 403, (what, answer.text)
        if who in ("olga", "every", "operate"):
            said = answer.json()
            assert "postroom org open" in str(said) or "only a person" in str(said), (what, said)
    assert site.workers(org) == before
    for path in ("/v1/orgs/acme/openings", "/v1/orgs/default/openings"):
        body = {"folder": str(site.home / "open"), "wall": "none"}
        for method in ("GET", "POST", "DELETE"):
            refused = site.call(who, method, path, None if method == "GET" else body, org)
            assert refused.status_code == (403 if org == "default" else 404), refused.text
    file = {"file": str(site.home / "shut" / "b"), "passphrase": "a long sentence that I know"}
    refused = site.call(who, "POST", "/v1/backup", file, org)
    assert refused.status_code == (403 if org == "default" else 404), refused.text


@pytest.mark.requirement("never-shown")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("org", ORGS)
def test_nor_does_a_restart_with_another_template(site: Site, org: str) -> None:
    for owner in ("olga", "operator"):
        nick = f"kept-{owner}"
        assert site.spawn(owner, nick, org=org).status_code == 201
        path = f"/v1/workers/{nick}/restart"
        for what, body in cases(site, nick):
            if body["template"] != PLAIN.format(nick=nick) and "set" not in body:
                answer = site.call("olga", "POST", path, {"template": body["template"]}, org)
                assert answer.status_code == 403, (what, answer.text)
        assert site.call("olga", "POST", path, org=org).status_code == 200


@pytest.mark.requirement("never-shown")
def test_a_template_of_a_lesser_key_does_not_inherit_what_the_operator_gave(site: Site) -> None:
    made = site.spawn("operator", "trusted", sandbox="none")
    assert made.status_code == 201, made.text
    path = "/v1/workers/trusted/restart"

    refused = site.call(
        "olga", "POST", path, {"template": PLAIN.format(nick="trusted").replace("900", "901")}
    )
    again = site.call("olga", "POST", path)

    assert refused.status_code == 403
    assert again.status_code == 200  # the operator's own program, as it was


@pytest.mark.requirement("never-shown")
def test_a_lesser_key_has_no_terminal_in_what_it_could_not_spawn(site: Site) -> None:
    assert site.spawn("operator", "bare-own", sandbox="none").status_code == 201
    assert site.spawn("operator", "walled-own").status_code == 201
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    said = {}
    for nick in ("bare-own", "walled-own"):
        for who, key in (
            ("olga", site.keys["acme", "olga"]),
            ("operator", site.room.server["token"]),
        ):
            url = f"{site.room.server['url']}/orgs/acme/v1/workers/{nick}/terminal"
            headers = {"Authorization": f"Bearer {key}", **upgrade}
            said[who, nick] = httpx2.get(url, headers=headers, timeout=30).status_code

    assert said["olga", "bare-own"] == 403
    # These take no terminal at all, which only who could have one is told.
    assert set(said.values()) == {403, 409}
    assert said["operator", "bare-own"] == said["olga", "walled-own"] == 409


@pytest.mark.requirement("never-shown")
def test_nor_does_it_allow_or_edit_what_such_a_worker_asks(site: Site) -> None:
    """An edited input is a command of theirs, and an allowed one what they have told the agent to do."""
    folder = site.home / "shut"
    for nick, more in (
        ("ask-bare", {"sandbox": "none"}),
        ("ask-copy", {"workspace": str(folder), "mode": "copy"}),
        ("ask-walled", {}),
    ):
        text = PLAIN.format(nick=nick) + "[sidecar]\n"
        assert site.spawn("operator", nick, text, **more).status_code == 201
    answer = {"type": "control_response", "id": "a1"}
    said = {}
    for nick in ("ask-bare", "ask-copy", "ask-walled"):
        path = f"/v1/workers/{nick}"
        for who in ("olga", "every", "operator"):
            for decision in ("allowed", "edited", "denied"):
                body = answer | {"decision": decision, "input": {"command": "id"}}
                if decision != "edited":
                    del body["input"]
                done = site.call(who, "POST", f"{path}/control", body)
                said[who, nick, decision] = done.status_code
            pattern = {"pattern": f"Bash(npm {who})"}
            done = site.call(who, "POST", f"{path}/policy", pattern)
            said[who, nick, "pattern"] = done.status_code

    refused = {asked for asked, status in said.items() if status == 403}
    assert refused == {
        (who, nick, decision)
        for who in ("olga", "every")
        for nick in ("ask-bare", "ask-copy")
        for decision in ("allowed", "edited", "pattern")
    }, said
    # The others hear that nothing like that is asked, and the pattern is added.
    assert set(said.values()) == {200, 403, 404}, said


@pytest.mark.requirement("never-shown")
def test_where_a_lesser_key_has_its_template_nobody_else_reads(site: Site) -> None:
    made = site.spawn("olga", "planted", path=str(site.home / "shut" / "planted.toml"))

    assert made.status_code == 201
    assert not made.json().get("template")


@pytest.mark.requirement("never-shown")
@pytest.mark.timeout(180)
def test_what_is_opened_can_be_had_and_what_is_closed_ends(site: Site) -> None:
    room, folder = site.room, site.home / "project"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "a.txt").write_text("read me")
    (folder / "link").symlink_to(site.home / ".ssh")

    refused = site.spawn("olga", "reader", with_compute("reader", f'read_only = ["{folder}"]'))
    assert f"postroom org open acme {folder}" in refused.json()["remedy"]
    room.run("org", "open", "acme", str(folder))
    assert str(folder) in room.run("org", "show", "acme")
    assert "nothing" in room.run("org", "show", "default")

    for inner in (folder, folder / "docs", folder / "docs" / "a.txt"):
        text = with_compute("reader", f'read_only = ["{inner}"]')
        assert site.spawn("olga", "reader", text).status_code == 201
        assert site.call("operator", "DELETE", "/v1/workers/reader").status_code == 200
    elsewhere = site.spawn("olga", "reader", text, org="default")
    assert elsewhere.status_code == 403
    for way in (str(folder / "link"), f"{folder}/../shut"):
        body = {"workspace": way, "mode": "copy"}
        assert site.spawn("olga", "reader", **body).status_code == 403
    direct = {"workspace": str(folder), "mode": "direct"}
    refused = site.spawn("olga", "writer", **direct)
    assert refused.status_code == 403
    assert refused.json()["remedy"].endswith(f"{folder} --as direct")

    room.run("org", "open", "acme", str(folder), "--as", "direct")
    assert site.spawn("olga", "writer", **direct).status_code == 201
    assert site.spawn("operator", "owned", sandbox="none").status_code == 201
    room.run("org", "close", "acme", str(folder))
    shown = site.call("operator", "GET", "/v1/workers/writer").json()
    assert shown["state"] == "failed"
    assert f"postroom org open acme {folder} --as direct" in shown["detail"]
    assert site.call("operator", "GET", "/v1/workers/owned").json()["state"] != "failed"
    assert site.call("olga", "POST", "/v1/workers/writer/restart").status_code == 403
    # Its template is a lesser key's, so the operator's start gives it no more.
    assert site.call("operator", "POST", "/v1/workers/writer/restart").status_code == 403


@pytest.mark.requirement("never-shown")
@pytest.mark.requirement("workspace-branch")
def test_branches_are_listed_and_deleted_in_what_is_open_alone(site: Site, tmp_path: Path) -> None:
    app = repository(tmp_path / "tidied")
    git(app, "branch", "postroom/old")
    query = f"/v1/leftovers?repository={app}"
    for method in ("GET", "DELETE"):
        assert site.call("olga", method, query).status_code == 403
    assert git(app, "branch", "--list", "postroom/old")
    assert site.call("operator", "GET", query).json()["branches"][0]["merged"] == "main"


def test_nobody_else_has_the_operators_key_by_a_backup(site: Site) -> None:
    """It is in there, under a passphrase of who asks for it; a worker of theirs could read an opened folder."""
    room, folder = site.room, site.home / "backups"
    folder.mkdir()
    room.run("org", "open", "default", str(folder), "--as", "direct")
    body = {"file": str(folder / "b"), "passphrase": "a long sentence that I know"}
    for who in ("admin", "every"):
        assert site.call(who, "POST", "/v1/backup", body, "default").status_code == 403
    assert not list(folder.iterdir())


@pytest.mark.requirement("never-shown")
@pytest.mark.timeout(180)
def test_what_is_closed_shows_nothing_more_of_itself(site: Site) -> None:
    room, folder = site.room, site.home / "shared"
    folder.mkdir()
    (folder / "a.txt").write_text("then\n")
    room.run("org", "open", "acme", str(folder), "--as", "direct")
    made = site.spawn("olga", "shower", workspace=str(folder), mode="direct")
    assert made.status_code == 201, made.text
    room.run("org", "close", "acme", str(folder))

    (folder / "a.txt").write_text("what the operator has written since\n")

    shown = site.call("olga", "POST", "/v1/workers/shower/diff", {})
    assert shown.status_code == 403, shown.text
    assert "written since" not in shown.text


@pytest.mark.requirement("never-shown")
@pytest.mark.timeout(180)
def test_what_a_repository_borrows_since_the_spawn_is_not_lent(site: Site) -> None:
    """A worker that writes an opened folder makes a repository there, and later has it borrow from another one."""
    room, folder = site.room, site.home / "common"
    made = repository(folder / "mine")
    other = repository(site.home / "theirs")
    (other / "plan.txt").write_text("what is not open\n")
    git(other, "add", ".")
    git(other, "commit", "-qm", "secret")
    room.run("org", "open", "acme", str(folder))
    started = site.spawn("olga", "borrower", workspace=str(made), mode="worktree")
    assert started.status_code == 201, started.text
    assert site.call("olga", "POST", "/v1/workers/borrower/diff", {}).status_code == 200
    uid = started.json()["uid"]
    own = room.state / "orgs" / "acme" / "workers" / uid / "workspace"
    branch = git(own, "symbolic-ref", "HEAD")

    (made / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")
    # As the worker could: its branch at a commit of the other one, and where an order would have that.
    (own / ".git" / branch).write_text(git(other, "rev-parse", "HEAD") + "\n")
    with (own / ".git/objects/info/alternates").open("a") as listed:
        listed.write("/opt/borrowed/1\n")

    shown = site.call("olga", "POST", "/v1/workers/borrower/diff", {})
    assert shown.status_code == 409, shown.text
    assert "what is not open" not in shown.text


@pytest.mark.requirement("never-shown")
@pytest.mark.timeout(180)
def test_what_is_closed_while_a_worker_starts_is_closed_to_it(site: Site) -> None:
    room, folder = site.room, site.home / "large"
    folder.mkdir()
    for number in range(20_000):
        (folder / f"{number}.txt").write_text("x" * 100)
    workers = room.state / "orgs" / "acme" / "workers"
    known = set(workers.iterdir())

    def copying() -> bool:
        return any(any(root.glob("workspace/*")) for root in set(workers.iterdir()) - known)

    room.run("org", "open", "acme", str(folder))
    body = {"workspace": str(folder), "mode": "copy"}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(site.spawn, "olga", "slow", **body)
        until(copying)
        room.run("org", "close", "acme", str(folder))
        answer = asked.result()

    assert answer.status_code == 403, answer.text
    assert "slow" not in site.workers()


@pytest.mark.requirement("never-shown")
def test_a_wall_is_opened_by_itself(site: Site) -> None:
    room = site.room
    room.run("org", "open", "acme", "--wall", "none")
    assert site.spawn("olga", "bare", sandbox="none").status_code == 201
    assert site.spawn("olga", "bare-2", sandbox="none", org="default").status_code == 403
    shut = {"workspace": str(site.home / "shut"), "mode": "copy"}
    assert site.spawn("olga", "bare-3", **shut).status_code == 403
    room.run("org", "close", "acme", "--wall", "none")
    assert site.call("operator", "GET", "/v1/workers/bare").json()["state"] == "failed"


@pytest.mark.requirement("never-shown")
def test_what_is_never_shown_is_opened_to_nobody(site: Site) -> None:
    room = site.room
    for folder in (site.home / ".ssh", site.home, room.state, "/proc", "/", "/etc"):
        room.run("org", "open", "acme", str(folder), status=2)
        assert "opened to nobody" in room.stderr
    for mode in ("copy", "direct"):
        body = {"workspace": str(site.home / ".ssh"), "mode": mode}
        assert site.spawn("operator", "nosy", **body).status_code == 422


@pytest.mark.requirement("never-shown")
@pytest.mark.timeout(180)
def test_stored_workers_of_lesser_keys_stay_down_until_it_is_opened(room: PostRoom) -> None:
    room.up()
    site = settled(room)
    folder = site.home / "project"
    folder.mkdir()
    assert site.spawn("operator", "mine", sandbox="none").status_code == 201
    for nick, body in (
        ("copied", {"template": with_compute("copied", f'read_only = ["{folder}"]')}),
        ("bare", {"template": PLAIN.format(nick="bare"), "sandbox": "none"}),
        ("old", {"template": PLAIN.format(nick="old"), "sandbox": "none"}),
        ("plain", {"template": PLAIN.format(nick="plain")}),
    ):
        made = site.call("operator", "POST", "/v1/workers", body | {"name": nick})
        assert made.status_code == 201, made.text
    room.run("down")
    # As an older version has stored them: a lesser key's, and one of which nobody knows whose it is.
    with closing(sqlite3.connect(room.state / "accounts.db")) as accounts:
        for nick, by in (
            ("copied", "f" * 32),
            ("bare", "f" * 32),
            ("plain", "f" * 32),
            ("old", None),
        ):
            found = (
                "SELECT w.uid, w.origin FROM workers w JOIN agents a USING (uid) WHERE a.nick = ?"
            )
            uid, text = accounts.execute(found, (nick,)).fetchone()
            origin = json.loads(text) | {"by": by}
            if by is None:
                del origin["by"]
            accounts.execute(
                "UPDATE workers SET origin = ? WHERE uid = ?", (json.dumps(origin), uid)
            )
        accounts.commit()
    room.up()

    states = {w["nick"]: w for w in site.call("operator", "GET", "/v1/workers").json()["workers"]}
    assert {nick for nick, w in states.items() if w["state"] == "failed"} == {
        "copied",
        "bare",
        "old",
    }
    assert f"postroom org open acme {folder}" in states["copied"]["detail"]
    assert "postroom org open acme --wall none" in states["bare"]["detail"]
    assert "not known" in states["old"]["detail"]
    sent = site.call("olga", "POST", "/v1/messages", {"to": "@copied", "text": "later"})
    assert sent.status_code in (200, 201, 202), sent.text

    assert site.call("olga", "POST", "/v1/workers/old/restart").status_code == 403
    assert site.call("operator", "POST", "/v1/workers/old/restart").status_code == 200
    room.run("org", "open", "acme", str(folder))
    assert site.call("olga", "POST", "/v1/workers/copied/restart").status_code == 200
    room.run("down")
    room.up()
    down = {
        w["nick"]
        for w in site.call("operator", "GET", "/v1/workers").json()["workers"]
        if w["state"] == "failed"
    }
    assert down == {"bare"}


@pytest.mark.requirement("never-shown")
@pytest.mark.timeout(180)
def test_a_link_that_is_swapped_in_gives_nothing(site: Site) -> None:
    """A worker that writes an opened folder swaps a folder in it while somebody spawns on it."""
    room, folder = site.room, site.home / "swapped"
    (folder / "a").mkdir(parents=True)
    secret = site.home / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    room.run("org", "open", "acme", str(folder), "--as", "direct")
    text = with_compute("racer", f'read_only = ["{folder}/a"]').replace(
        "import time; time.sleep(900)",
        f"import os; print(os.listdir('{folder}/a'), flush=True); __import__('time').sleep(900)",
    )
    done = os.fork()
    if not done:
        for _ in range(200_000):
            try:
                (folder / "a").rename(folder / "b")
                (folder / "a").symlink_to(secret)
                (folder / "a").unlink()
                (folder / "b").rename(folder / "a")
            except OSError:
                continue
        os._exit(0)
    try:
        seen = 0
        for _ in range(8):
            made = site.spawn("olga", "racer", text)
            seen += made.status_code == 201
            if made.status_code == 201:
                log = site.room.state / "orgs" / "acme" / "workers" / made.json()["uid"] / "log"
                until(partial(_printed, log))
                assert "key" not in log.read_text()
                site.call("operator", "DELETE", "/v1/workers/racer?purge=true")
    finally:
        os.kill(done, 9)
        os.waitpid(done, 0)
        shutil.rmtree(folder, ignore_errors=True)


def _printed(log: Path) -> bool:
    return "[" in log.read_text()
