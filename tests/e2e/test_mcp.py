"""MCP by a person's own installation: inside a sandbox by `postroom-agent mcp`, and outside at `/mcp`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from postroom.connect.claiming import claim
from postroom.errors import NotFound, StateUnwritable
from tests.e2e.conftest import TEMPLATE, PostRoom

AGENT = r"""
import json, os, resource, subprocess

CALLS = [
    ("initialize", {"protocolVersion": "2025-11-25"}),
    ("tools/list", {}),
    ("a2a_whoami", {}),
    ("a2a_send_message", {"to": "@app", "text": "from the sandbox", "expects_reply": False}),
    ("a2a_report_task", {"task": os.environ["POSTROOM_TASK"], "state": "working", "text": "half"}),
]


def line(number, method, params):
    if method.startswith("a2a_"):
        method, params = "tools/call", {"name": method, "arguments": params}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


input()
relay = subprocess.Popen(["postroom-agent", "mcp"], stdin=-1, stdout=-1, text=True)
answers = []
for number, (method, params) in enumerate(CALLS):
    relay.stdin.write(line(number, method, params) + "\n")
    relay.stdin.flush()
    answers.append(json.loads(relay.stdout.readline()))
relay.stdin.close()
_, status, used = os.wait4(relay.pid, 0)
secrets = [name for name in os.environ if "TOKEN" in name or "KEY" in name]
print(json.dumps({"answers": answers, "status": status, "kilobytes": used.ru_maxrss, "secrets": secrets,
                  "seconds": used.ru_utime + used.ru_stime}))
"""


def called(room: PostRoom, key: str, tool: str, org: str = "", **arguments: Any) -> str:
    """The text of a tool's result, over the address of the post room."""
    params = {"name": tool, "arguments": arguments}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"authorization": f"Bearer {key}", "accept": "application/json"}
    place = f"{room.server['url']}{f'/orgs/{org}' if org else ''}/mcp"
    answer = httpx2.post(place, json=asked, headers=headers)
    assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
    return answer.json()["result"]["content"][0]["text"]


@pytest.mark.requirement("mcp-tools-short")
def test_an_agent_in_a_sandbox_speaks_by_tools_behind_the_gateway(shared: PostRoom) -> None:
    shared.run("agents", "add", "app", "--external", "--key-file", str(shared.scratch / "app.key"))
    key = (shared.scratch / "app.key").read_text().strip()
    template = TEMPLATE.format(name="toolie") + 'adapter = "text"\n'
    shared.run("spawn", shared.template(template, "toolie", toolie=AGENT))
    said = shared.run("delegate", "@toolie", "go", "--wait", "--timeout", "35", "--json")
    task = json.loads(said.splitlines()[-1])
    told = json.loads(task["artifacts"][0]["text"])

    greeting, tools, me, sent, reported = [each["result"] for each in told["answers"]]
    assert greeting["protocolVersion"] == "2025-11-25"
    assert len(tools["tools"]) == 12
    assert "@toolie (worker)" in me["content"][0]["text"]
    assert not sent["isError"], sent
    assert not reported["isError"], reported
    assert (told["status"], told["secrets"]) == (0, [])
    assert told["kilobytes"] <= 20_000
    assert told["seconds"] <= 0.3  # of a machine that may be busy; alone it takes 0.04

    shown = called(shared, key, "a2a_check_inbox")
    assert "From @toolie (worker)" in shown
    assert "| from the sandbox" in shown
    with shared.client() as client:
        messages = client.task_messages(task["id"])
    [message] = [each for each in messages if each["kind"] == "message"]
    assert (
        message["text"] == "from the sandbox"
    )  # it belongs to the task in whose course it was said


@pytest.mark.requirement("mcp-key-by-code")
def test_the_owner_claims_a_key_into_a_file_that_nobody_else_reads(
    shared: PostRoom, tmp_path: Path
) -> None:
    former = shared.scratch / "counter.key"
    shared.run("agents", "add", "counter", "--external", "--key-file", str(former))
    said = called(shared, former.read_text().strip(), "a2a_rotate_api_key")
    code = re.search(r"(?:[a-z0-9]{5}-){3}[a-z0-9]{5}", said)
    assert code

    with shared.client() as client:
        (tmp_path / "keys").mkdir(mode=0o500)
        if os.geteuid():  # root writes everywhere
            with pytest.raises(StateUnwritable):
                claim(client, code[0], tmp_path)
        (tmp_path / "keys").chmod(0o700)
        claimed = claim(client, code[0], tmp_path)
        with pytest.raises(NotFound):
            claim(client, code[0], tmp_path)

    assert claimed.file == tmp_path / "keys" / "counter.key"
    assert list((tmp_path / "keys").iterdir()) == [claimed.file]
    assert claimed.file.stat().st_mode & 0o777 == 0o600
    assert "You are @counter" in called(shared, claimed.file.read_text().strip(), "a2a_whoami")


@pytest.mark.requirement("mcp-key-by-code")
def test_a_key_is_claimed_by_the_command_which_does_not_show_it(
    shared: PostRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = shared.scratch / "till.key"
    shared.run("agents", "add", "till", "--external", "--key-file", str(former))
    said = called(shared, former.read_text().strip(), "a2a_rotate_api_key")
    code = re.search(r"(?:[a-z0-9]{5}-){3}[a-z0-9]{5}", said)
    assert code
    monkeypatch.setitem(shared.env, "XDG_DATA_HOME", str(tmp_path))

    claimed = shared.run("connect", "--claim", code[0])

    file = tmp_path / "postroom" / "connect" / "keys" / "till.key"
    assert claimed == f"the key of @till is in {file}, which only you can read\n"
    assert "You are @till" in called(shared, file.read_text().strip(), "a2a_whoami")


@pytest.mark.requirement("mcp-same-operation")
def test_a_key_of_another_organisation_opens_its_own_tools_alone(shared: PostRoom) -> None:
    shared.run("org", "create", "acme")
    keys = {}
    for org in ("default", "acme"):
        file = shared.scratch / f"{org}-ann.key"
        shared.run("--org", org, "agents", "add", "ann", "--external", "--key-file", str(file))
        keys[org] = file.read_text().strip()

    assert "in the organisation acme" in called(shared, keys["acme"], "a2a_whoami", org="acme")
    assert "@ann" in called(shared, keys["acme"], "a2a_list_agents", org="acme")
    assert "in the organisation default" in called(shared, keys["default"], "a2a_whoami")
    for key, org in ((keys["acme"], ""), (keys["default"], "acme")):
        with pytest.raises(AssertionError, match="401"):
            called(shared, key, "a2a_whoami", org=org)
