"""A post room whose state is in PostgreSQL: used, restarted, and left without its database for a while."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.across import operator
from tests.e2e.conftest import EXAMPLES, PostRoom, until
from tests.postgres import PASSWORD, PostgresServer, running_postgres

ECHO = str(EXAMPLES / "echo.toml")


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def kept(room: PostRoom, server: PostgresServer) -> Iterator[PostRoom]:
    """A post room that is down at the start, with a new database."""
    room.env["POSTROOM_DATABASE_URL"] = server.new_database()
    yield room
    if not server.runs:
        server.start()


@pytest.mark.requirement("settings-precedence")
@pytest.mark.timeout(120)
def test_a_post_room_on_postgresql_does_what_one_on_files_does(kept: PostRoom) -> None:
    kept.up()
    kept.run("spawn", ECHO)
    assert "you said: hello" in kept.run("send", "@echo", "hello", "--wait", "answered")
    assert "you said: work" in kept.run("delegate", "@echo", "work", "--wait")
    kept.run("org", "create", "acme")
    kept.run("--org", "acme", "spawn", ECHO)
    assert "you said: hi" in kept.run("--org", "acme", "send", "@echo", "hi", "--wait", "answered")

    kept.run("down")
    kept.up()
    found = kept.json("inbox", "--all")["messages"]
    assert [message["text"] for message in found if "hello" in message["text"]]
    assert "you said: again" in kept.run("send", "@echo", "again", "--wait", "answered")
    assert [task["state"] for task in kept.json("task", "list", "--all")["tasks"]] == ["completed"]
    assert "org acme" in kept.run("--org", "acme", "status")

    assert not {"accounts.db", "blobs.db", "projection.db"} & {
        path.name for path in kept.state.rglob("*")
    }
    shown = kept.env["POSTROOM_DATABASE_URL"].rpartition("@")[2]
    assert kept.json("status")["server"]["database"].endswith(shown)
    assert shown in kept.run("status")
    assert shown in (kept.state / "logs" / "up.log").read_text()
    kept.run("org", "remove", "acme", "--yes")
    kept.run("org", "create", "acme")
    assert kept.json("--org", "acme", "status")["workers"] == []
    assert no_secret(kept)


@pytest.mark.requirement("across-both-halves")
@pytest.mark.timeout(120)
def test_two_organisations_on_postgresql_write_to_each_other(kept: PostRoom) -> None:
    kept.up()
    kept.run("org", "create", "acme")
    here, there = operator(kept, "default"), operator(kept, "acme")
    there.lets_in(here.uid)

    sent = here.send(there.address, "a question")
    (came,) = there.inbox(wait=20)
    there.send(came["from"]["uid"], "an answer", reply_to=came["id"], expects_reply=False)

    answered = here.receipt(sent["id"], "answered")
    assert answered["answer"]["from"]["nick"] == f"{there.nick}.acme"
    assert here.send("@nobody.acme", "hello", 403)["code"] == "not-let-in"


def no_secret(room: PostRoom) -> bool:
    """Whether the password is in no file of the post room, and in no command line of a process."""
    said = [path for path in room.state.rglob("*") if path.is_file() and not path.is_symlink()]
    lines = Path("/proc").glob("[0-9]*/cmdline")
    return not any(PASSWORD.encode() in read(path) for path in (*said, *lines))


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


@pytest.mark.slow
@pytest.mark.requirement("postgres-outage-survived")
@pytest.mark.timeout(180)
def test_nothing_is_lost_when_postgresql_is_killed_while_messages_flow(
    kept: PostRoom, server: PostgresServer
) -> None:
    kept.up()
    kept.run("spawn", ECHO)
    kept.run("send", "@echo", "first", "--wait", "answered")
    before = [kept.popen("send", "@echo", f"before {n}", "--key", f"b{n}") for n in range(3)]
    server.kill()
    during = kept.call("send", "@echo", "during", "--key", "during")
    assert during.returncode != 0
    assert "does not answer" in during.stderr
    assert PASSWORD not in during.stderr
    for command in before:
        command.communicate(timeout=60)
    server.start()

    until(lambda: kept.call("status").returncode == 0)
    # The key makes a repetition of what was stored already the same message.
    for text, key in [*((f"before {n}", f"b{n}") for n in range(3)), ("during", "during")]:
        kept.run("send", "@echo", text, "--key", key, "--wait", "answered")
    answers = [m["text"] for m in kept.json("inbox", "--all")["messages"]]
    for text in ("first", "before 0", "before 1", "before 2", "during"):
        assert len([one for one in answers if one.endswith(f"you said: {text}")]) == 1
    assert kept.json("status")["alerts"] == []


@pytest.mark.slow
@pytest.mark.requirement("backup-restores-all")
@pytest.mark.timeout(120)
def test_a_backup_is_restored_into_another_database_and_into_no_full_one(
    kept: PostRoom, server: PostgresServer
) -> None:
    secret = kept.scratch / "passphrase"
    secret.write_text("correct horse\n")
    backup, words = str(kept.scratch / "backup"), ("--passphrase-file", str(secret))
    kept.up()
    kept.run("org", "create", "second")
    kept.run("chat", "#main", given="kept\n")
    kept.run("--org", "second", "chat", "#main", given="of the second\n")
    kept.run("backup", backup, *words)
    kept.run("down")

    other = PostRoom(kept.scratch / "other" / "state", kept.scratch)
    other.state.parent.mkdir()
    other.env["POSTROOM_DATABASE_URL"] = kept.env["POSTROOM_DATABASE_URL"]
    other.run("restore", backup, *words, status=5)
    assert "is not empty" in other.stderr
    other.env["POSTROOM_DATABASE_URL"] = server.new_database()
    other.run("restore", backup, *words)
    other.up()
    try:
        assert "kept" in other.run("chat", "#main", given="")
        assert "of the second" in other.run("--org", "second", "chat", "#main", given="")
    finally:
        other.run("down")


@pytest.mark.requirement("org-no-subject-crosses")
def test_a_second_post_room_on_the_same_database_is_refused(kept: PostRoom, tmp_path: Path) -> None:
    kept.up()
    other = PostRoom(tmp_path / "state", tmp_path)
    other.env["POSTROOM_DATABASE_URL"] = kept.env["POSTROOM_DATABASE_URL"]
    refused = other.call("up", "--port", "0", "--nats-port", "0")
    assert refused.returncode == 10
    assert "another post room" in refused.stderr
    assert PASSWORD not in refused.stderr + refused.stdout


def test_a_database_that_is_not_there_ends_the_start_with_a_remedy(
    room: PostRoom, server: PostgresServer
) -> None:
    room.env["POSTROOM_DATABASE_URL"] = server.url("nowhere")
    refused = room.call("up", "--port", "0", "--nats-port", "0")
    assert refused.returncode == 10
    assert "nowhere" in refused.stderr
    assert "database.url" in refused.stderr
