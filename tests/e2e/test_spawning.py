"""What a person can ask of `spawn` and of the API, and what is said when it cannot be."""

from __future__ import annotations

import base64
import json
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import EXAMPLES, PostRoom, running_room, until

ECHO = (EXAMPLES / "echo.toml").read_text()


@pytest.fixture(scope="module")
def room() -> Iterator[PostRoom]:
    """One post room for all tests here; each uses names of its own."""
    with running_room() as room:
        yield room


@pytest.fixture
def api(room: PostRoom) -> Iterator[httpx2.Client]:
    """The HTTP API as the operator."""
    headers = {"Authorization": f"Bearer {room.server['token']}"}
    with httpx2.Client(base_url=room.server["url"], headers=headers, timeout=20) as client:
        yield client


def spawn(api: httpx2.Client, template: str = ECHO, **more: Any) -> httpx2.Response:
    return api.post("/v1/workers", json={"template": template, **more})


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_an_unknown_key_is_named_with_the_one_that_was_meant(room: PostRoom) -> None:
    path = room.template(ECHO.replace("command", "comand"), "misspelt")

    room.run("spawn", path, status=2)

    assert "comand" in room.stderr
    assert "did you mean 'command'" in room.stderr


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_bad_toml_is_refused_with_its_place(room: PostRoom) -> None:
    room.run("spawn", room.template("[worker\nname=1", "broken"), status=2)

    assert "line 1" in room.stderr


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_a_missing_file_of_the_template_is_named(room: PostRoom) -> None:
    text = ECHO.replace("[workstation]", '[workstation]\nfiles = ["absent.py"]')

    room.run("spawn", room.template(text, "incomplete"), status=2)

    assert "absent.py" in room.stderr


def test_a_template_that_does_not_exist_is_named(room: PostRoom) -> None:
    room.run("spawn", str(room.scratch / "nowhere.toml"), status=2)

    assert "nowhere.toml" in room.stderr


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_a_value_for_an_undeclared_parameter_names_the_declared_ones(room: PostRoom) -> None:
    room.run("spawn", str(EXAMPLES / "lead.toml"), "--set", "colour=red", status=2)

    assert "folder, skill" in room.stderr


@pytest.mark.requirement("directory-name-unique")
@pytest.mark.parametrize("again", ["first", "f1rst", "f-irst"])
def test_a_taken_nick_and_its_look_alikes_are_refused(
    room: PostRoom, api: httpx2.Client, again: str
) -> None:
    spawn(api, name="first")

    refused = spawn(api, name=again)

    assert refused.status_code == 409
    assert refused.json()["code"] == "name-taken"


@pytest.mark.requirement("directory-name-unique")
@pytest.mark.parametrize(
    "nick", ["operator", "system", "human", "0perator", "Upper", "-x", "a b", ""]
)
def test_reserved_and_malformed_nicks_are_refused(api: httpx2.Client, nick: str) -> None:
    refused = spawn(api, ECHO.replace('"echo"', f'"{nick}"'))

    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_a_worker_that_could_not_be_started_leaves_nothing(
    room: PostRoom, api: httpx2.Client
) -> None:
    text = ECHO.replace('"echo"', '"homeless"') + '\n[compute]\nread_only = ["/no/such/folder"]\n'

    refused = spawn(api, text)

    assert refused.status_code == 422
    assert "/no/such/folder" in refused.json()["detail"]
    assert "homeless" not in [w["nick"] for w in room.json("status")["workers"]]
    assert spawn(api, name="homeless").status_code == 201


@pytest.mark.requirement("worker-spawn-all-or-nothing")
@pytest.mark.parametrize(
    "files", [{"other.py": ""}, {"agent.py": "no base64!"}, {}], ids=["extra", "garbled", "missing"]
)
def test_files_must_be_those_of_the_template(api: httpx2.Client, files: dict[str, str]) -> None:
    text = ECHO.replace("[workstation]", '[workstation]\nfiles = ["agent.py"]')

    assert spawn(api, text, name="filed", files=files).status_code == 422


def test_files_of_the_template_are_read_only_to_the_agent(
    room: PostRoom, api: httpx2.Client
) -> None:
    program = "open('/opt/agent/agent.py', 'a')"
    text = ECHO.replace("[workstation]", '[workstation]\nfiles = ["agent.py"]')
    text = text.replace('["sed", "-u", "s/^/you said: /"]', '["python3", "/opt/agent/agent.py"]')
    text = text.replace('adapter = "text"', 'adapter = "jsonl"')

    worker = spawn(
        api, text, name="writer", files={"agent.py": base64.b64encode(program.encode()).decode()}
    ).json()

    log = room.state / "workers" / worker["uid"] / "log"
    until(lambda: log.exists() and "Read-only file system" in log.read_text())


@pytest.mark.requirement("sandbox-partial-stated")
def test_a_worker_without_a_wall_is_shown_as_such(room: PostRoom) -> None:
    room.run("spawn", str(EXAMPLES / "echo.toml"), "--name", "naked", "--sandbox", "none")

    room.await_state("naked", "idle")
    assert room.worker("naked")["sandbox"]["level"] == "none"
    assert "you said:" in room.run("send", "@naked", "hi", "--wait", "answered")


def test_an_unknown_sandbox_names_the_choices(api: httpx2.Client) -> None:
    refused = spawn(api, name="castle", sandbox="castle")

    assert refused.status_code == 422
    assert "bubblewrap" in refused.json()["remedy"]


@pytest.mark.requirement("sidecar-message-handed")
def test_an_agent_that_exits_1_is_shown_as_failed_and_its_mail_waits(room: PostRoom) -> None:
    text = ECHO.replace('["sed", "-u", "s/^/you said: /"]', '["false"]').replace(
        '"echo"', '"quitter"'
    )
    text = text.replace('adapter = "text"', 'adapter = "jsonl"')
    room.run("spawn", room.template(text, "quitter"), status=1)

    worker = room.await_state("quitter", "failed")
    mail = room.json("send", "@quitter", "hello?")

    assert "1" in worker["detail"]
    assert mail["state"] == "accepted"
    assert room.worker("quitter")["unread"] == 1
    assert "quitter" in [alert["nick"] for alert in room.json("status")["alerts"]]


@pytest.mark.requirement("api-key-required")
@pytest.mark.parametrize("key", ["", "a2a_" + "0" * 32 + "_" + "0" * 64])
def test_the_api_wants_the_operators_key(room: PostRoom, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}

    answer = httpx2.get(room.server["url"] + "/v1/status", headers=headers)

    assert answer.status_code == 401
    assert answer.json()["type"] == "urn:postroom:error:unauthorized"


@pytest.mark.requirement("api-key-required")
def test_a_foreign_host_header_is_refused(api: httpx2.Client) -> None:
    assert api.get("/v1/status", headers={"Host": "evil.example"}).status_code == 403


def test_a_body_over_the_limit_is_refused_and_the_post_room_lives_on(
    room: PostRoom, api: httpx2.Client
) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(9):
            yield b"x" * 1024 * 1024

    refused = api.post("/v1/messages", content=chunks())

    assert refused.status_code == 413
    assert room.json("status")["server"]["pid"] == room.server["pid"]


@pytest.mark.requirement("api-key-required")
def test_the_operator_cannot_report_events_in_a_workers_name(
    room: PostRoom, api: httpx2.Client
) -> None:
    uid = spawn(api, name="reported").json()["uid"]

    assert (
        api.post(f"/v1/workers/{uid}/sdk-events", json={"events": [{"type": "x"}]}).status_code
        == 403
    )


@pytest.mark.requirement("identity-keys-private")
def test_what_holds_a_secret_is_readable_by_its_owner_only(room: PostRoom) -> None:
    files = [path for path in room.state.rglob("*") if path.is_file()]

    assert (room.state / "projection.db") in files
    assert {stat.S_IMODE(room.state.stat().st_mode) & 0o077} == {0}
    assert {path.name for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077} == set()


@pytest.mark.requirement("task-retry")
def test_a_removed_worker_frees_its_nick_and_what_waits_for_it_is_dead(room: PostRoom) -> None:
    path = str(EXAMPLES / "echo.toml")
    room.run("spawn", path, "--name", "leaver")
    room.run("stop", "leaver")
    waiting = room.json("send", "@leaver", "too late")["id"]

    room.run("remove", "leaver")

    room.run("receipt", waiting, "--wait", "answered", status=7)
    assert "recipient retired" in room.stderr
    room.run("send", "@leaver", "hello", status=4)
    room.run("spawn", path, "--name", "leaver")
    assert "you said:" in room.run("send", "@leaver", "hello", "--wait", "answered")


@pytest.mark.requirement("audit-acts-explained")
def test_each_connection_through_a_door_is_in_the_audit_log(
    room: PostRoom, api: httpx2.Client
) -> None:
    assert _relayed(room, api, ECHO + "[sidecar]\n", "audited") == {"nats", "http"}


def test_without_a_sidecar_table_the_uplink_runs_and_reports_no_events(
    room: PostRoom, api: httpx2.Client
) -> None:
    assert _relayed(room, api, ECHO, "alone") == {"nats"}
    room.run("restart", "alone")
    room.await_state("alone", "idle")

    assert room.run("delegate", "@alone", "are you there?", "--wait").strip()
    assert room.json("agents")["agents"]


def _relayed(room: PostRoom, api: httpx2.Client, template: str, nick: str) -> set[str]:
    """Protocols that a worker of `template` has spoken through its door, from its start to its end."""
    uid = spawn(api, template, name=nick).json()["uid"]
    room.await_state(nick, "idle")
    room.run("stop", nick)
    text = (room.state / "logs" / "audit.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    return {
        line["protocol"]
        for line in lines
        if line.get("worker") == uid and line.get("verb") == "close"
    }


@pytest.mark.requirement("state-lock-exclusive")
def test_a_second_up_on_the_same_folder_says_who_has_it(room: PostRoom) -> None:
    room.run("up", "--port", "0", "--nats-port", "0", status=5)

    assert str(room.server["pid"]) in room.stderr


def test_a_taken_port_is_named(room: PostRoom) -> None:
    port = room.server["url"].rsplit(":", 1)[1]
    other = PostRoom(room.scratch / "other", room.scratch)

    other.run("up", "--port", port, "--nats-port", "0", status=10)

    assert port in other.stderr


def test_up_without_write_permission_says_so(room: PostRoom) -> None:
    blocked = room.scratch / "file"
    blocked.write_text("")
    other = PostRoom(blocked / "state", room.scratch)

    other.run("up", "--port", "0", "--nats-port", "0", status=10)

    assert "--state DIR" in other.stderr


@pytest.mark.requirement("sandbox-select-failclosed")
def test_no_sandbox_possible_means_no_worker_and_a_remedy() -> None:
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        other = PostRoom(Path(scratch) / "state", Path(scratch))
        broken = Path(scratch) / "bwrap"
        broken.write_text(
            "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n"
        )
        broken.chmod(0o755)
        other.env["POSTROOM_BWRAP"] = str(broken)
        other.up()
        try:
            other.run("spawn", str(EXAMPLES / "echo.toml"), status=10)

            assert "try:" in other.stderr
            assert other.json("status")["workers"] == []
        finally:
            other.run("down")


@pytest.mark.requirement("cli-errors-one-line")
def test_a_fault_in_mid_life_ends_up_with_one_line_and_its_remedy(tmp_path: Path) -> None:
    room = PostRoom(tmp_path / "state", tmp_path)
    room.up()
    room.run("down")
    (room.state / "projection.db").write_text(
        "this is no database, and large enough to be read as one" * 100
    )

    room.run("up", "--port", "0", "--nats-port", "0", status=10)

    assert "Traceback" not in room.stderr
    assert "postroom:" in room.stderr


@pytest.mark.requirement("wall-sidecar-closed")
def test_a_module_that_an_agent_left_in_its_workspace_is_not_run_by_the_sidecar(
    room: PostRoom,
) -> None:
    room.run("spawn", str(EXAMPLES / "echo.toml"), "--name", "planter")
    uid = room.worker("planter")["uid"]
    workspace = room.state / "workers" / uid / "workspace"
    (workspace / "postroom").mkdir()
    for name in ("postroom/__init__.py", "asyncio.py", "json.py"):
        (workspace / name).write_text("open('/workspace/was-run', 'w')\nraise SystemExit(1)\n")

    room.run("restart", "planter")

    assert room.run("send", "--wait", "answered", "@planter", "hello").endswith("hello\n")
    assert not (workspace / "was-run").exists()
    room.run("stop", "planter")


@pytest.mark.requirement("sandbox-select-failclosed")
def test_a_template_cannot_do_without_the_wall_by_itself(
    room: PostRoom, api: httpx2.Client
) -> None:
    text = ECHO.replace("[workstation]", '[compute]\nsandbox = "none"\n[workstation]')

    refused = spawn(api, text, name="wallless")
    asked_for = spawn(api, text, name="wallless", sandbox="none")

    assert refused.status_code == 403
    assert "--sandbox none" in refused.json()["remedy"]
    assert asked_for.json()["sandbox"]["level"] == "none"
    room.run("stop", "wallless")


@pytest.mark.requirement("never-shown")
@pytest.mark.parametrize("part", [".", "keys", "workers", ".."])
def test_a_template_cannot_share_the_state_folder_or_what_holds_it(
    room: PostRoom, api: httpx2.Client, part: str
) -> None:
    folder = (room.state / part).resolve()
    text = ECHO.replace("[workstation]", f'[compute]\nread_only = ["{folder}"]\n[workstation]')

    refused = spawn(api, text, name="curious")

    assert refused.status_code == 422
    assert "no sandbox is shown" in refused.json()["detail"]


@pytest.mark.requirement("egress-refused-told")
@pytest.mark.parametrize("host", ["127.0.0.1:11434", "localhost:11434", "[::1]:11434"])
def test_a_host_that_the_operator_has_not_opened_is_said_at_the_spawn_and_nothing_is_made(
    room: PostRoom, host: str
) -> None:
    text = TEMPLATE_WITH_HOST.format(host=host)

    room.run("spawn", room.template(text, "closed"), status=6)

    assert f"postroom config set egress.allow_private {host}" in room.stderr
    assert "closed" not in [worker["nick"] for worker in room.json("status")["workers"]]


TEMPLATE_WITH_HOST = """
[worker]
name = "closed"
[workstation]
command = ["cat"]
adapter = "text"
[overrides]
egress = ["http://{host}"]
"""
