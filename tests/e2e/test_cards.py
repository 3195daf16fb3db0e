"""Cards as people and agents see them: real workers in a real post room."""

from __future__ import annotations

import httpx2
import pytest

from postroom.directory.card_signatures import verify_card
from tests.e2e.conftest import EXAMPLES, PostRoom, until


@pytest.mark.requirement("a2a-http-card")
def test_a_worker_is_found_by_its_skill_and_shown_as_offline_once_it_stops(
    shared: PostRoom,
) -> None:
    folder = shared.scratch / "source"
    folder.mkdir()
    shared.run("spawn", str(EXAMPLES / "echo.toml"))
    shared.run("spawn", str(EXAMPLES / "reviewer.toml"), "--set", f"folder={folder}")
    shared.await_state("reviewer", "idle")

    with shared.client() as client:
        (found,) = client.agents(skill="review-python-source")
        card, keys = client.card("reviewer"), client.card_keys()
        served = client.served_card("reviewer")
        assert client.agents(skill="fly") == []
    everybody = shared.run("agents")

    assert (found["nick"], found["online"], found["card"]) == ("reviewer", True, card)
    said = verify_card(card, keys)
    assert (served["name"], served["skills"]) == (said["name"], said["skills"])
    assert served["supportedInterfaces"][0]["protocolBinding"] == "JSONRPC"
    assert said["description"].startswith("Reviews a folder of Python source")
    assert said["supportedInterfaces"][0]["url"] == f"nats://worker.{found['uid']}.rpc"
    assert {"@echo", "@reviewer"} <= {line.split()[0] for line in everybody.splitlines()}
    assert httpx2.get(shared.server["url"] + "/.well-known/jwks.json").json() == {"keys": keys}
    assert httpx2.get(shared.server["url"] + "/v1/agents/reviewer/card").status_code == 401
    shared.run("stop", "reviewer")
    (stopped,) = shared.json("agents", "--skill", "review-python-source")["agents"]
    assert (stopped["online"], stopped["card"]) == (False, card)


FINDER = """
import json, subprocess, sys
for line in sys.stdin:
    if json.loads(line)["type"] == "message":
        found = subprocess.run(
            ["postroom-agent", "agents", "--skill", "find"], capture_output=True, text=True
        )
        text = found.stdout + found.stderr
        print(json.dumps({"type": "reply", "to": json.loads(line)["id"], "text": text}), flush=True)
"""


@pytest.mark.requirement("task-skill-chosen")
def test_an_agent_in_its_sandbox_finds_another(shared: PostRoom) -> None:
    text = """[worker]
name = "finder"
description = "Finds."
[workstation]
command = ["python3", "/opt/agent/finder.py"]
files = ["finder.py"]
skills = ["find"]
"""
    shared.run("spawn", shared.template(text, "finder", finder=FINDER))
    shared.await_state("finder", "idle", "working")

    said = shared.run("send", "@finder", "who?", "--wait", "answered")

    assert said.strip() == "@finder online [find] Finds."
    until(lambda: shared.json("agents", "--skill", "find")["agents"][0]["online"])
    assert not [a for a in shared.json("status")["alerts"] if "card" in a["text"]]
