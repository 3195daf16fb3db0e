"""What a worker's sidecar is told at its start."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.identity.trust import Trust
from postroom.protocol.template import parse_template
from postroom.sandbox.port import SandboxPaths
from postroom.sandbox.selftest import Canaries
from postroom.workers.launch import AGENT_FOLDER, WorkerIdentity, sidecar_config
from postroom.workers.workspaces.tracking import PERSON
from tests.control.taskroom import card
from tests.rig import new_uid

TEMPLATE = '[worker]\nname="x"\n[workstation]\ncommand=["true"]\n'


@pytest.mark.parametrize("table, interactive", [("", False), ("[sidecar]\n", True)])
def test_a_sidecar_is_told_its_run_and_whether_it_reports_events(
    tmp_path: Path, table: str, interactive: bool
):
    uid, trust = new_uid(), Trust.load_or_create(tmp_path)
    passport = WorkerIdentity(
        uid=uid,
        nick="alice",
        org="default",
        projects=("main",),
        credential=trust.mint_agent(uid, ("main",), lifetime=60, now=time.time()),
        token="secret",
        message_secret=b"x" * 32,
        owner=new_uid(),
        level="none",
        card=card(uid, "alice"),
        run="a" * 32,
    )
    paths = SandboxPaths("/w", "/s", "/g", "/k", "/h", {AGENT_FOLDER: AGENT_FOLDER})

    config = sidecar_config(parse_template(TEMPLATE + table), passport, paths, Canaries())

    assert (config["run"], config["interactive"]) == ("a" * 32, interactive)
    assert config["standing"] == ""
    shown = replace(paths, mounts={**paths.mounts, PERSON: "/host/person"})
    config = sidecar_config(parse_template(TEMPLATE + table), passport, shown, Canaries())
    assert config["standing"] == "/host/person/standing.json"
