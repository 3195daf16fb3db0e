"""Programs behind the adapter `text`: each message and each task is a run of its own."""

from __future__ import annotations

import asyncio
import json
import shlex
from typing import Any

import pytest

from postroom.protocol.presence import WorkerState
from postroom.protocol.priority import Cancel, Input
from postroom_a2a.messages import ROLE_USER, text_message, text_of
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import artifacts_of, status_text
from tests.sidecar.worker_rig import WorkerRig

pytestmark = pytest.mark.anyio

AGENT = """
    from postroom.agentcli.main import main
"""
"""Before a program that calls `main([...])`, which is `postroom-agent`."""


def text(*command: str, **more: Any) -> dict[str, Any]:
    """An agent with the adapter `text`; without a command it is the test's Python program."""
    return {"adapter": "text"} | ({"command": list(command)} if command else {}) | more


async def result(home: WorkerRig, task: str) -> list[str]:
    """The texts of the artifacts of a task that has to be completed."""
    record = await home.ledger.until(task, TaskState.COMPLETED)
    return [artifact["text"] for artifact in artifacts_of(record.task)]


@pytest.mark.requirement("text-controls-stripped")
async def test_a_request_of_several_lines_is_one_unit_and_so_is_its_answer(home: WorkerRig) -> None:
    requests = [f"task {n}\nsecond line of {n}\n\nlast of {n}" for n in range(3)]
    async with home.sidecar("", agent=text("cat")):
        for request in requests:
            assert await result(home, await home.request(request)) == [request]

        asked = {await home.write(said, expects_reply=True): said for said in requests}
        await home.tap.until(lambda: len(home.to_alice()) == len(asked))
        assert {e.reply_to: text_of(e.message) for e in home.to_alice()} == asked


@pytest.mark.requirement("text-controls-stripped")
async def test_a_shell_loop_that_reads_lines_gets_those_of_one_request(home: WorkerRig) -> None:
    loop = 'while read -r line; do printf "got %s\\n" "$line"; done'
    async with home.sidecar("", agent=text("sh", "-c", loop)):
        for n in range(3):
            task = await home.request(f"{n} first\n{n} second")
            assert await result(home, task) == [f"got {n} first\ngot {n} second"]


async def test_a_program_that_ends_with_an_error_has_failed_its_task_with_its_last_words(
    home: WorkerRig,
) -> None:
    program = """
    import sys
    word = sys.stdin.read().strip()
    print("half an answer to", word)
    if word == "bad":
        raise SystemExit("Traceback:\\n    it broke")
    """
    async with home.sidecar(program, agent=text()):
        bad = await home.request("bad")
        good = await home.request("good")

        failed = await home.task(bad, TaskState.FAILED)
        assert status_text(failed.task) == "exit code 1: Traceback:\n    it broke"
        assert artifacts_of(failed.task) == []
        assert await result(home, good) == ["half an answer to good"]
    assert "agent stderr:     it broke" in home.log()


async def test_a_program_that_was_killed_is_run_again_and_no_more_than_three_times(
    home: WorkerRig,
) -> None:
    async with home.sidecar("os.kill(os.getpid(), 9)", agent=text()):
        failed = await home.task(await home.request("x"), TaskState.FAILED)

    assert status_text(failed.task) == "lost 3 times, last: the agent ended: killed by signal 9"


async def test_a_message_is_done_when_its_run_has_ended_well_and_comes_again_when_not(
    home: WorkerRig,
) -> None:
    program = """
    if not os.path.exists("tried"):
        open("tried", "w").close()
        raise SystemExit(3)
    print("again: " + sys.stdin.read(), end="")
    """
    async with home.sidecar(program, agent=text()):
        message = await home.write("hello", expects_reply=True)
        await home.seen(message)

        assert [text_of(e.message) for e in home.to_alice()] == ["again: hello"]


async def test_what_is_printed_to_an_answer_that_wants_none_is_sent_to_nobody(
    home: WorkerRig,
) -> None:
    async with home.sidecar("", agent=text("cat")):
        answer = await home.write("my answer", reply_to="f" * 32)
        question = await home.write("a question")
        await home.seen(answer, question)

        assert [text_of(e.message) for e in home.to_alice()] == ["a question"]


async def test_a_run_is_told_whom_and_what_it_is_about(home: WorkerRig) -> None:
    program = """
    names = ["FROM", "TASK", "MESSAGE", "ATTEMPT"]
    print(json.dumps([os.environ.get("POSTROOM_" + name) for name in names]))
    """
    async with home.sidecar(program, agent=text()):
        task = await home.request("x")
        assert [json.loads(each) for each in await result(home, task)] == [
            ["@alice", task, "", "1"]
        ]

        message = await home.write("x")
        await home.tap.until(home.to_alice)
        (answer,) = home.to_alice()
        assert json.loads(text_of(answer.message)) == ["@alice", "", message, ""]


async def test_a_run_that_asked_is_followed_by_one_that_reads_all_that_was_said(
    home: WorkerRig,
) -> None:
    program = (
        AGENT
        + """
    said = sys.stdin.read()
    if "red" in said:
        print(said, end="")
    else:
        sys.exit(main(["ask", "which\\none?"]))
    """
    )
    async with home.sidecar(program, agent=text()):
        task = await home.request("paint it")
        await home.task(task, TaskState.INPUT_REQUIRED)
        await home.overtake(Input(task, text_message("m1", "the red one", role=ROLE_USER)))

        assert await result(home, task) == [
            "@alice: paint it\n\nyou: which\n    one?\n\n@alice: the red one"
        ]


@pytest.mark.requirement("task-queue-keeps-order")
async def test_a_cancel_interrupts_the_run_and_nothing_that_it_prints_then_is_a_result(
    home: WorkerRig,
) -> None:
    program = """
    def told(number, frame):
        print("half done", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGINT, told)
    open("ready", "w").close()
    signal.pause()
    """
    fifo = home.fifo("ready")
    async with home.sidecar(program, agent=text()):
        task = await home.request("for ever")
        await asyncio.to_thread(fifo.read_text)
        await home.overtake(Cancel(task))

        canceled = await home.task(task, TaskState.CANCELED)
        assert artifacts_of(canceled.task) == []


async def test_a_run_that_does_not_heed_a_cancel_is_ended_and_the_next_task_is_worked_on(
    home: WorkerRig,
) -> None:
    program = """
    if sys.stdin.read().strip() == "stubborn":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        open("ready", "w").close()
        while True:
            signal.pause()
    print("done")
    """
    fifo = home.fifo("ready")
    async with home.sidecar(program, agent=text(), cancel_grace=0.2):
        stubborn = await home.request("stubborn")
        await asyncio.to_thread(fifo.read_text)
        after = await home.request("next")
        await home.overtake(Cancel(stubborn))

        canceled = await home.task(stubborn, TaskState.CANCELED)
        assert "was ended" in status_text(canceled.task)
        assert await result(home, after) == ["done"]


@pytest.mark.requirement("text-controls-stripped")
async def test_a_run_that_goes_on_after_its_task_is_over_can_say_nothing_of_the_next(
    home: WorkerRig,
) -> None:
    program = (
        AGENT
        + """
    if sys.stdin.read().strip() == "first":
        main(["complete", "early"])
        print("late", flush=True)
        code = main(["complete", "of the wrong task"])
        open("refused", "w").write(str(code))
    else:
        print("second")
    """
    )
    async with home.sidecar(program, agent=text()):
        first = await home.request("first")
        second = await home.request("second")

        done = await home.task(first, TaskState.COMPLETED)
        assert (status_text(done.task), artifacts_of(done.task)) == ("early", [])
        assert await result(home, second) == ["second"]
    assert (home.folder / "refused").read_text() in {"4", "5"}  # it is over, or has just ended


@pytest.mark.requirement("text-controls-stripped")
async def test_a_run_about_a_message_has_no_task_to_speak_of(home: WorkerRig) -> None:
    go = home.fifo("go")
    program = (
        AGENT
        + f"""
    if os.environ["POSTROOM_TASK"]:
        open("{go}").read()
        print("the task's own answer")
    else:
        sys.exit(main(["complete", "not mine"]) - 2)
    """
    )
    async with home.sidecar(program, agent=text()):
        task = await home.request("work")
        await home.task(task, TaskState.WORKING)
        await home.seen(await home.write("and a message beside it"))
        await asyncio.to_thread(go.write_text, "")

        assert await result(home, task) == ["the task's own answer"]
    assert "this run handles a message and not a task" in home.log()


async def test_an_answer_without_an_end_is_refused_and_not_cut(home: WorkerRig) -> None:
    async with home.sidecar("", agent=text("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x")):
        failed = await home.task(await home.request("x"), TaskState.FAILED)

    assert "postroom-agent artifact --file" in status_text(failed.task)


async def test_a_program_that_does_not_read_its_request_may_answer_it(home: WorkerRig) -> None:
    async with home.sidecar("", agent=text("echo", "nobody read you")):
        assert await result(home, await home.request("x" * 20_000)) == ["nobody read you"]


async def test_a_program_that_is_not_there_is_told_at_the_start(home: WorkerRig) -> None:
    async with home.sidecar("", agent=text("no-such-program", "-p")):
        await home.state(WorkerState.FAILED)

        assert "no-such-program" in home.presence().detail
        assert home.alerts() == ["agent-failed"]


async def test_a_worker_that_is_stopped_puts_the_task_of_a_text_program_down(
    home: WorkerRig,
) -> None:
    program = """
    if not os.path.exists("begun"):
        open("begun", "w").close()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print("half an answer", flush=True)
        signal.pause()
    print("attempt", os.environ["POSTROOM_ATTEMPT"])
    """
    async with home.sidecar(program, agent=text(), stop_grace=0.1):
        task = await home.request("x")
        await home.task(task, TaskState.WORKING)
        while not (home.folder / "begun").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async with home.sidecar(program, agent=text()):
        assert await result(home, task) == ["attempt 2"]


@pytest.mark.parametrize("path", ["/usr/bin:/bin", "${PATH}", ""])
async def test_postroom_agent_is_found_whatever_path_the_template_sets(
    home: WorkerRig, path: str
) -> None:
    words = shlex.join(["postroom-agent", "whoami"])
    agent = text("/bin/sh", "-c", words, env={"PATH": path})
    async with home.sidecar("", agent=agent):
        assert await result(home, await home.request("x")) == [f"@reader {home.worker}"]


async def test_what_an_agent_is_told_to_try_is_a_command_that_it_has(home: WorkerRig) -> None:
    async with home.sidecar("", agent=text("postroom-agent", "send", "@nobody", "hello")):
        failed = await home.task(await home.request("x"), TaskState.FAILED)

    told = "exit code 4: postroom-agent: no agent @nobody (postroom-agent agents lists all)"
    assert status_text(failed.task) == told
