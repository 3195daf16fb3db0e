"""`postroom nats config`, and how `postroom up` tells why it does not run on somebody's NATS."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from postroom.bus.server_binary import find_binary
from postroom.identity import keyring
from postroom.identity.trust import Trust
from tests.cli.conftest import LIMIT, Run, environment, spawned
from tests.cluster import running_cluster

pytestmark = pytest.mark.anyio


def _accepts(file: Path) -> str:
    done = subprocess.run(
        [find_binary(), "-t", "-c", file], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    return done.stderr


@pytest.mark.requirement("nats-unfit-refused")
async def test_a_server_with_exactly_what_is_printed_carries_the_post_room(
    postroom: Run, tmp_path: Path
):
    file = tmp_path / "postroom.conf"

    printed = postroom("nats", "config", "--folder", str(tmp_path / "server"))

    assert printed.status == 0
    file.write_text(printed.out)
    assert "is valid" in _accepts(file)

    def exactly(config: dict[str, Any]) -> None:
        beside = Path(config["jetstream"]["store_dir"]).parent / file.name
        beside.write_text(printed.out)
        own = {key: config[key] for key in ("host", "port", "server_name")}
        config.clear()
        config.update(own, include=beside.name)

    trust = Trust.load_or_create(tmp_path / "keys")
    async with running_cluster(tmp_path / "n", trust, size=1, change=exactly) as cluster:
        environ = environment(POSTROOM_NATS_URL=cluster.urls[0])
        state = ("--state", str(tmp_path))
        up = spawned(["up", "--detach", "--port", "0", *state], env=environ)
        down = spawned(["down", *state])

    assert (up.status, up.err.count("postroom:")) == (0, 0)
    assert down.status == 0
    banner = (tmp_path / "logs" / "up.log").read_text()
    assert f"{cluster.urls[0]} (nats-server 2." in banner
    assert "not ours, 1 copy" in banner


@pytest.mark.requirement("nats-unfit-refused")
def test_what_is_printed_holds_no_private_key_and_stays_the_same_trust(
    postroom: Run, tmp_path: Path
):
    first = json.loads(postroom("nats", "config", "--json").out)
    again = json.loads(postroom("nats", "config", "--json").out)

    keys = json.loads((tmp_path / "keys" / keyring.FILE).read_text())
    seeds = [value for value in _strings(keys) if value.startswith("S")]
    assert len(seeds) > 5
    assert not [seed for seed in seeds if seed in json.dumps(first)]
    assert first["system_account"] == again["system_account"]
    assert first["proxies"] == again["proxies"]
    assert first["jetstream"]["sync_interval"] == "always"


def _strings(document: Any) -> list[str]:
    if isinstance(document, dict):
        return [text for value in document.values() for text in _strings(value)]
    return [document] if isinstance(document, str) else []


@pytest.mark.requirement("nats-unfit-refused")
async def test_up_on_servers_of_another_operator_ends_with_the_reason_and_the_remedy(
    tmp_path: Path,
):
    other = Trust.load_or_create(tmp_path / "others")
    async with running_cluster(tmp_path / "n", other, size=1) as cluster:
        environ = environment(POSTROOM_NATS_URL=cluster.urls[0])
        up = spawned(["up", "--state", str(tmp_path / "state")], env=environ)

    assert up.status == 10
    assert "trusts another operator" in up.err
    assert "try: `postroom nats config`" in up.err
    assert not (tmp_path / "state" / "server.json").exists()


@pytest.mark.parametrize(
    "url, words, said",
    [
        ("nats://user:pw@127.0.0.1", [], "carries a credential"),
        ("nats://10.0.0.7", [], "clear text"),
        ("nats://127.0.0.1:4222", ["--memory"], "--memory stores nothing"),
    ],
)
def test_up_refuses_what_cannot_be_meant(tmp_path: Path, url: str, words: list[str], said: str):
    up = spawned(["up", "--state", str(tmp_path), *words], env=environment(POSTROOM_NATS_URL=url))

    assert up.status == 2
    assert said in up.err
