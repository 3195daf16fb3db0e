"""The embedded engine and a server's address: locks, what a kill leaves, and what nobody may read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from postroom.errors import InvalidInput
from postroom_a2a.surreal import Address, Failed, InUse, open_connection
from postroom_a2a.surreal.connection import SYNC, Connection

TABLE = "DEFINE TABLE t SCHEMAFULL; DEFINE FIELD n ON t TYPE int"

HOLDS = """
import os, sys, time
from pathlib import Path
from postroom_a2a.surreal import Address, open_connection
connection = open_connection(Address.parse(sys.argv[1]), "d")
connection.run("DEFINE TABLE IF NOT EXISTS t SCHEMAFULL; DEFINE FIELD IF NOT EXISTS n ON t TYPE int")
connection.run("CREATE t SET n = 1")
print(os.environ["SURREAL_SYNC_DATA"], flush=True)
if len(sys.argv) > 2:
    sys.exit()
sys.stdin.read()
"""


def process(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDS, f"surrealdb+file://{folder}", *words],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, SYNC: "false"},  # whatever it was set to
    )


def opened(folder: Path) -> Connection:
    return open_connection(Address.parse(f"surrealdb+file://{folder}"), "d")


@pytest.mark.requirement("store-contract-kept")
def test_a_second_process_is_refused_and_what_a_killed_one_has_committed_is_there(tmp_path: Path):
    with process(tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "true\n"
        with pytest.raises(InUse, match=f"is open in the process with pid {first.pid} "):
            opened(tmp_path)
        first.send_signal(signal.SIGKILL)
    connection = opened(tmp_path)
    assert connection.rows("SELECT VALUE n FROM t") == [1]
    connection.close()
    with process(tmp_path, "ends") as other:
        assert other.wait(20) == 0  # the engine keeps no process from its end
    again = opened(tmp_path)
    assert again.rows("SELECT VALUE n FROM t") == [1, 1]
    again.close()


def test_several_threads_share_the_engine_and_lose_nothing(tmp_path: Path):
    connection = opened(tmp_path)
    connection.run(TABLE)

    def add() -> None:
        for _ in range(25):
            connection.run("UPSERT t:one SET n = (n OR 0) + 1")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert connection.rows("SELECT VALUE n FROM t:one") == [100]
    connection.close()


def test_a_failed_statement_undoes_its_transaction_and_says_why_without_values():
    connection = open_connection(Address.parse("surrealdb+mem://"), "d")
    connection.run(TABLE)
    with pytest.raises(Failed) as failed:
        connection.run("BEGIN; CREATE t SET n = 1; CREATE t SET n = $n; COMMIT", {"n": "secret"})
    assert "not run" not in str(failed.value)
    assert connection.rows("SELECT * FROM t") == []
    connection.close()


@pytest.mark.parametrize(
    "url",
    [
        "surrealdb+file://relative",
        "surrealdb+file:///",
        "file:///folder",
        "surrealdb+mem://x",
        "surrealdb+ftp://host/ns",
        "surrealdb+ws://localhost",
        "surrealdb+ws://localhost/ns/db/more",
        "surrealdb+ws://localhost/a b",
        "surrealdb+ws://u:pass@word@localhost/ns?x=1",
        "surrealdb+ws://u:se/cret@localhost/ns",
        "surrealdb+ws://db.example/ns",
        "surrealdb+http://u:secret@10.0.0.1/ns",
    ],
)
def test_an_address_that_is_none_or_could_be_read_on_its_way_is_refused_without_its_password(
    url: str,
):
    with pytest.raises(InvalidInput) as refused:
        Address.parse(url)
    assert "secret" not in str(refused.value)
    assert "word@" not in str(refused.value)


def test_an_address_is_shown_without_user_and_password():
    address = Address.parse("surrealdb+wss://user:p%40ss@db.example/ns/db")
    assert (address.user, address.password, address.server) == (
        "user",
        "p@ss",
        "wss://db.example:443/rpc",
    )
    assert address.shown == "surrealdb+wss://db.example:443/ns/db"
    assert "p@ss" not in repr(address)
    assert Address.parse("surrealdb+http://[::1]/ns").server == "ws://[::1]:8000/rpc"
    assert Address.parse("surrealdb+file:///a%20b").folder == Path("/a b")
