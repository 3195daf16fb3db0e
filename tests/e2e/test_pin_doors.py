"""A PIN guards each way to give a worker another policy."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import running_room
from tests.e2e.test_reach import PLAIN, Site, settled

PIN = "4711"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_room() as room:
        made = settled(room)
        for nick in ("guarded", "filed"):
            assert (
                made.spawn("operator", nick, text(nick), "default", files=FILES).status_code == 201
            )
        assert made.spawn("operator", "guarded", text("guarded"), files=FILES).status_code == 201
        assert made.call("operator", "PUT", "/v1/pin", {"pin": PIN}, "default").status_code == 200
        yield made


FILES = {"a.txt": base64.b64encode(b"a").decode()}


def text(nick: str, sidecar: str = "", compute: str = "") -> str:
    plain = PLAIN.format(nick=nick) + 'files = ["a.txt"]\n'
    return f"{plain}[sidecar]\nauto_approve = []\n{sidecar}\n[compute]\n{compute}\n"


@pytest.mark.requirement("approval-pin-demanded")
@pytest.mark.parametrize("org", ["default", "acme"])
@pytest.mark.parametrize(
    "sidecar, compute",
    [
        ("autonomous = true", ""),
        ('approval_timeout = 1\napproval_default = "allow"', ""),
        ("", 'read_only = ["/usr/share"]'),
        ("", 'sandbox = "bubblewrap"'),
    ],
)
def test_a_restart_with_another_template_needs_it(
    site: Site, org: str, sidecar: str, compute: str
) -> None:
    path = "/v1/workers/guarded/restart"
    other = {"template": text("guarded", sidecar, compute), "files": FILES}

    codes = [
        site.call("operator", "POST", path, other | pin, org).json().get("code")
        for pin in ({}, {"pin": "1234"})
    ]
    same = {"template": text("guarded"), "files": FILES}

    assert codes == ["pin-required", "pin-wrong"]
    assert site.call("operator", "POST", path, same, org).status_code == 200
    assert site.call("operator", "POST", path, org=org).status_code == 200
    right = site.call("operator", "POST", path, other | {"pin": PIN}, org)
    assert right.status_code == 200, right.text
    assert site.call("operator", "POST", path, same | {"pin": PIN}, org).status_code == 200


@pytest.mark.requirement("approval-pin-demanded")
def test_another_program_or_file_needs_it(site: Site) -> None:
    path = "/v1/workers/filed/restart"
    changed = {"a.txt": base64.b64encode(b"b").decode()}
    for body in (
        {"template": text("filed"), "files": changed},
        {"template": text("filed").replace("900", "901"), "files": FILES},
    ):
        assert site.call("operator", "POST", path, body, "default").json()["code"] == "pin-required"


@pytest.mark.requirement("approval-pin-demanded")
@pytest.mark.parametrize("org", ["default", "acme"])
def test_a_spawn_needs_it_in_every_organisation(site: Site, org: str) -> None:
    bodies: tuple[dict[str, Any], ...] = ({}, {"sandbox": "none"}, {"set": {}})
    for body in bodies:
        refused = site.spawn("operator", "fresh", org=org, **body)
        assert refused.json()["code"] == "pin-required"
    assert "fresh" not in site.workers(org)
    # A PIN of the operator's in another organisation does not stand in for it.
    set_there = site.call("operator", "PUT", "/v1/pin", {"pin": "9999"}, "acme")
    assert set_there.status_code in (200, 403)
    assert site.spawn("operator", "fresh", org=org, pin="9999").json()["code"] == "pin-wrong"
    assert site.spawn("operator", "fresh", org=org, pin=PIN).status_code == 201
    assert site.spawn("olga", "free", org=org).status_code == 201  # who has set none


@pytest.mark.requirement("approval-pin-demanded")
def test_what_opens_the_machine_needs_it(site: Site) -> None:
    path = "/v1/orgs/acme/openings"
    refused = site.call("operator", "POST", path, {"wall": "none"}, "default")
    assert refused.json()["code"] == "pin-required"
    opened = site.call("operator", "POST", path, {"wall": "none", "pin": PIN}, "default")
    assert opened.status_code == 200
    assert site.call("operator", "DELETE", path, {"wall": "none"}, "default").status_code == 200


@pytest.mark.requirement("approval-pin-demanded")
@pytest.mark.parametrize("org", ["default", "acme"])
def test_no_key_that_could_do_without_it_is_made_without_it(site: Site, org: str) -> None:
    keys = site.call("operator", "GET", "/v1/keys", org=org).json()["keys"]
    theirs = next(key["id"] for key in keys if key["agent"]["nick"] == "p-olga")
    before = len(keys)
    for scope in ("operate", "admin"):
        for path, body in (
            ("/v1/keys", {"scopes": [scope]}),
            ("/v1/keys", {"agent": "p-read", "scopes": ["read", scope]}),
            ("/v1/people", {"nick": f"helper-{scope}", "scopes": [scope]}),
            ("/v1/agents", {"nick": f"helper-{scope}", "scopes": [scope]}),
            (f"/v1/keys/{theirs}/rotate", {}),
        ):
            for pin in ({}, {"pin": "1234"}):
                answer = site.call("operator", "POST", path, body | pin, org)
                code = "pin-wrong" if pin else "pin-required"
                assert answer.json().get("code") == code, (path, body, answer.text)
            # So that the wrong ones are not too many.
            right = {"scopes": ["operate"], "pin": PIN}
            made = site.call("operator", "POST", "/v1/keys", right, org)
            assert made.status_code == 201, made.text
            ended = site.call("operator", "DELETE", f"/v1/keys/{made.json()['id']}", org=org)
            assert ended.status_code == 200
    assert len(site.call("operator", "GET", "/v1/keys", org=org).json()["keys"]) == before

    usual = {"nick": "usual", "scopes": ["read", "send", "task"]}
    assert site.call("operator", "POST", "/v1/people", usual, org).status_code == 201
    replaced = site.call("operator", "POST", f"/v1/keys/{theirs}/rotate", {"pin": PIN}, org)
    assert replaced.status_code == 201, replaced.text
    site.keys[org, "olga"] = replaced.json()["key"]


@pytest.mark.requirement("approval-pin-demanded")
def test_the_commands_take_it_from_a_file_or_say_that_it_is_needed(
    site: Site, tmp_path: Path
) -> None:
    room = site.room
    (tmp_path / "pin").write_text(f"{PIN}\n")
    template = room.template(PLAIN.format(nick="typed"), "typed")

    refused = room.call("spawn", template)
    assert refused.returncode != 0
    assert "your PIN is needed" in refused.stderr
    room.run("spawn", template, "--pin-file", str(tmp_path / "pin"))
    Path(template).write_text(PLAIN.format(nick="typed").replace("900", "901"))
    assert "your PIN is needed" in room.call("restart", "typed").stderr
    assert "changed: command" in room.run("restart", "typed", "--pin-file", str(tmp_path / "pin"))
    room.run("restart", "typed")
    for words in (
        ("keys", "create", "--scope", "operate"),
        ("people", "add", "tess", "--scope", "admin"),
        ("agents", "add", "bot", "--external", "--scope", "operate"),
    ):
        assert "your PIN is needed" in room.call(*words).stderr, words
        assert "a2a_" in room.run(*words, "--pin-file", str(tmp_path / "pin")), words
