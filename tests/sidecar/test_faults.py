"""What an agent program may do to its sidecar, each with a real process."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from postroom.protocol.presence import WorkerState
from postroom_a2a.messages import text_of
from tests.sidecar.worker_rig import PATIENCE, WorkerRig

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("sidecar-message-handed")
async def test_an_agent_that_exits_1_is_restarted_and_gets_the_message_again_flagged(
    home: WorkerRig,
):
    agent = """
    for message in messages():
        if not message["redelivered"]:
            sys.exit(1)
        say(type="reply", to=message["id"], text="at last")
    """
    async with home.sidecar(agent):
        asked = await home.write("hello")
        (answer,) = await home.tap.until(home.to_alice)

        assert answer.reply_to == asked
        await home.all_acked()
        assert not home.alerts()


@pytest.mark.requirement("sidecar-message-handed")
async def test_an_agent_that_keeps_ending_is_given_up_with_an_alert_and_keeps_its_inbox(
    home: WorkerRig,
):
    agent = "sys.exit(3)"
    async with home.sidecar(agent, agent={"restart_limit": 2}):
        await home.state(WorkerState.FAILED)
        await home.tap.until(home.alerts)

        assert home.alerts() == ["agent-failed"]
        assert home.presence().detail == "exit code 3"
        sent = await home.write("who reads this?")
        # It may have come to the pull that is being closed: then it is given back.
        async with asyncio.timeout(PATIENCE):
            while sum(await home.bus.admin.pending("INBOX", home.worker)) != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert not home.receipts(sent)


async def test_a_program_that_cannot_be_started_is_a_failure_with_the_shells_exit_code(
    home: WorkerRig,
):
    async with home.sidecar("", agent={"command": ["/no/such/program"], "restart_limit": 0}):
        await home.state(WorkerState.FAILED)

        assert home.presence().detail == "exit code 127"


async def test_an_agent_that_ends_with_0_is_not_restarted_and_nothing_more_is_pulled(
    home: WorkerRig,
):
    async with home.sidecar("next(lines())"):
        await home.state(WorkerState.EXITED)
        async with asyncio.timeout(PATIENCE):
            while "its records wait in the log" not in home.log():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await home.write("later")

        await home.pending("INBOX", (1, 0))
        assert not home.alerts()


async def test_an_agent_that_is_killed_is_restarted(home: WorkerRig):
    agent = """
    for message in messages():
        if not message["redelivered"]:
            os.kill(os.getpid(), signal.SIGKILL)
        say(type="reply", to=message["id"], text="alive")
    """
    async with home.sidecar(agent):
        await home.write("hello")
        await home.tap.until(home.to_alice)

        assert "killed by signal 9" in home.log()


@pytest.mark.requirement("mail-deadletter-moved")
async def test_a_message_that_kills_its_reader_does_not_take_others_with_it(home: WorkerRig):
    agent = """
    for message in messages():
        if message["text"] == "poison":
            sys.exit(1)
        say(type="reply", to=message["id"], text=message["text"])
    """
    texts = ["one", "poison", "two", "three"]
    sent = [await home.write(text) for text in texts]
    async with home.sidecar(agent, agent={"restart_limit": 5}):
        await home.seen(sent[0], sent[2], sent[3])

        await home.tap.until(lambda: len(home.to_alice()) == 3)
        assert "seen" not in home.receipts(sent[1])


@pytest.mark.requirement("sidecar-lines-survive")
async def test_an_over_long_line_is_skipped_with_an_error_and_the_next_line_counts(home: WorkerRig):
    agent = """
    sys.stdout.write('{"type":"post","text":"' + "x" * 3_000_000 + '"}\\n')
    say(type="post", text="after")
    for line in lines():
        if line["type"] == "error":
            say(type="post", text=line["code"])
    """
    async with home.sidecar(agent):
        await home.tap.until(lambda: len(home.posts()) == 2)

        assert home.posts() == ["after", "invalid-input"]


async def test_a_line_of_nearly_a_mebibyte_is_read_whole(home: WorkerRig):
    agent = """
    say(type="post", text="x" * 400_000 + "y", padding="z" * 500_000)
    sys.stdin.read()
    """
    async with home.sidecar(agent):
        (post,) = await home.tap.until(home.posts)

        assert len(post) == 400_001


async def test_invalid_utf8_becomes_replacement_characters(home: WorkerRig):
    agent = """
    sys.stdout.buffer.write(b'{"type":"post","text":"a\\xff\\xc3b"}\\n')
    sys.stdout.flush()
    sys.stdin.read()
    """
    async with home.sidecar(agent):
        (post,) = await home.tap.until(home.posts)

        assert post == "a\ufffd\ufffdb"


async def test_what_is_no_action_goes_to_the_log_and_the_agent_lives_on(home: WorkerRig):
    agent = """
    for text in ("plain text", "{broken", '{"type":"unknown"}', "[1]", "[" * 100_000, "\\x1b[2J"):
        print(text, flush=True)
    say(type="post", text="alive")
    sys.stdin.read()
    """
    async with home.sidecar(agent):
        await home.tap.until(home.posts)

        assert "agent stdout: plain text" in home.log()
        assert "\x1b" not in home.log()


@pytest.mark.requirement("sidecar-message-handed")
async def test_an_agent_that_never_reads_is_handed_no_more_and_nothing_is_lost(home: WorkerRig):
    agent = """
    say(type="post", text="up")
    while not os.path.exists("go"):
        time.sleep(0.02)
    for message in messages():
        say(type="reply", to=message["id"], text=message["text"][:3])
    """
    async with home.sidecar(agent):
        await home.tap.until(home.posts)
        sent = [await home.write(f"{n:03} " + "x" * 3000) for n in range(20)]
        await home.tap.until(lambda: home.presence().waiting == 1)
        assert not home.receipts()

        (home.folder / "go").touch()
        await home.seen(*sent)
        assert [text_of(e.message) for e in home.to_alice()] == [f"{n:03}" for n in range(20)]


async def test_hostile_values_in_well_formed_lines_do_not_end_the_sidecar(home: WorkerRig):
    agent = r"""
    strange = "\ud800 \u0000 \u202e"
    for text in (strange, "", "x" * 100_000):
        for kind in ("send", "reply", "post", "seen", "status"):
            say(type=kind, to="@alice", text=text, key=text, id=text, state=text, ref=text)
            say(type=kind, to=text, text=text, project=text, ref=[text] * 3, expires_in=1e9)
    say(type="send", to="@alice", text="still here", key=strange + "2")
    sys.stdin.read()
    """
    async with home.sidecar(agent):
        await home.tap.until(lambda: "still here" in [text_of(e.message) for e in home.to_alice()])
        asked = await home.write("and you?")
        await home.tap.until(lambda: "delivered" in home.receipts(asked))


async def test_a_child_that_keeps_the_pipes_open_does_not_hang_the_sidecar(home: WorkerRig):
    agent = """
    if os.fork() == 0:
        os.setsid()
        open("child", "a").write(f"{os.getpid()} ")
        time.sleep(300)
    message = next(messages())
    if not message["redelivered"]:
        sys.exit(1)
    say(type="reply", to=message["id"], text="after the crash")
    sys.stdin.read()
    """
    async with home.sidecar(agent):
        try:
            await home.write("hello")
            await home.tap.until(home.to_alice)
        finally:
            kill_recorded(home)


def kill_recorded(home: WorkerRig) -> None:
    """End the children, one of each run, that left their agent's session on purpose."""
    with suppress(FileNotFoundError):
        for pid in (home.folder / "child").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


async def test_children_in_the_agents_session_end_with_it(home: WorkerRig):
    agent = """
    reading, writing = os.pipe()
    if os.fork() == 0:
        time.sleep(300)
    say(type="post", text=str(os.getpid()))
    sys.exit(1)
    """
    async with home.sidecar(agent, agent={"restart_limit": 0}):
        await home.state(WorkerState.FAILED)

        (leader,) = home.posts()
        async with asyncio.timeout(PATIENCE):  # a killed process takes a moment to end
            while processes_of_group(int(leader)):  # noqa: ASYNC110 (nothing tells of it)
                await asyncio.sleep(0.01)


def processes_of_group(group: int) -> list[int]:
    """Live processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


async def test_an_agent_that_closes_its_output_but_lives_is_still_handed_messages(home: WorkerRig):
    agent = """
    os.close(1)
    for message in messages():
        open(GOT, "w").write(message["text"])
    """
    got = home.fifo("got")
    async with home.sidecar(agent.replace("GOT", repr(str(got)))):
        sent = await home.write("hello")
        await home.tap.until(lambda: "delivered" in home.receipts(sent))

        assert await asyncio.to_thread(got.read_text) == "hello"


async def test_an_agent_that_closes_its_input_but_lives_is_shown_as_stalled(home: WorkerRig):
    agent = """
    os.close(0)
    say(type="post", text="deaf")
    time.sleep(300)
    """
    async with home.sidecar(agent):
        await home.tap.until(home.posts)
        await home.write("hello")

        await home.state(WorkerState.STALLED)
        assert home.presence().detail == "it closed its input"


@pytest.mark.requirement("sidecar-lines-survive")
async def test_an_agent_that_floods_its_output_is_held_back_and_every_post_is_stored(
    home: WorkerRig,
):
    agent = """
    for n in range(400):
        say(type="post", text=f"{n} " + "x" * 2000)
    for message in messages():
        say(type="reply", to=message["id"], text="still here")
    """
    async with home.sidecar(agent):
        await home.write("hello")
        await home.tap.until(home.to_alice)
        await home.tap.until(lambda: len(home.posts()) == 400)

        assert [p.split()[0] for p in home.posts()] == [str(n) for n in range(400)]


async def test_an_agent_that_prints_without_end_does_not_starve_the_rest(home: WorkerRig):
    agent = """
    import threading
    def flood():
        while True:
            sys.stdout.write("noise\\n")
    threading.Thread(target=flood, daemon=True).start()
    for message in messages():
        sys.stdout.write("\\n" + json.dumps(dict(type="seen", id=message["id"])) + "\\n")
    """
    async with home.sidecar(agent, log_level="warning"):
        sent = await home.write("hello")
        await home.tap.until(lambda: home.receipts(sent))


async def test_the_agents_error_output_goes_to_the_log(home: WorkerRig):
    async with home.sidecar('sys.stderr.write("oh no\\n"); sys.stdin.read()'):
        await home.state(WorkerState.IDLE)
        async with asyncio.timeout(10):
            while "agent stderr: oh no" not in home.log():  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_an_action_that_takes_long_does_not_lose_the_ones_after_it(home: WorkerRig):
    agent = """
    message = next(messages())
    say(type="send", to="@alice", text="before", key="k")
    say(type="send", to="@alice", text="before", key="k")
    say(type="seen", id=message["id"])
    sys.stdin.read()
    """
    async with home.sidecar(agent):
        sent = await home.write("go")
        await home.seen(sent)

        assert len(home.to_alice()) == 1


@pytest.mark.requirement("sidecar-lines-survive")
async def test_lines_that_cannot_be_read_are_counted_in_the_status_with_the_last_of_them(
    home: WorkerRig,
):
    agent = """
    for n in range(40):
        print("loading\x1b[2J", n)
    sys.stdout.flush()
    next(messages())
    print(json.dumps({"type": "assistant"}), flush=True)
    sys.stdin.read()
    """
    async with home.sidecar(agent):
        told = "printed 40 lines that are no JSON; last: loading 39"
        await home.tap.until(lambda: told in [each.detail for each in home.presences()])
        await home.write("go on")

        last = 'printed 41 lines that are of no known type; last: {"type": "assistant"}'
        await home.tap.until(lambda: last in [each.detail for each in home.presences()])
