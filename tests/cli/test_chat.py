"""Chats in a pipe and on a terminal."""

from __future__ import annotations

import os
import pty
import queue
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import LIMIT, command, environment, spawned
from tests.client.standin import BOB, DEADLINE, ME, Standin, frame, from_bob, mail, post, problem

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def project(standin: Standin, *posts: object) -> queue.Queue[bytes | None]:
    standin.answer("GET /v1/projects/main/posts", {"posts": list(posts)})
    return standin.stream()


def direct(standin: Standin, *mails: object) -> queue.Queue[bytes | None]:
    standin.answer("GET /v1/chats/bob/messages", {"messages": list(mails)})
    return standin.stream()


def texts(out: str) -> list[str]:
    """The lines without their times."""
    return [
        re.sub(r"^(\d{4}-\d\d-\d\d )?\d\d:\d\d(:\d\d)? ", "", line) for line in out.splitlines()
    ]


# ── in a pipe ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("cli-chat-pipes")
def test_each_line_of_a_pipe_is_sent_in_order_and_nothing_is_shown_twice(
    standin: Standin, tmp_path: Path
):
    frames = project(standin, post(1, "before"))
    standin.answer("POST /v1/projects/main/posts", post(2, "one", ME), 201)
    standin.answer("POST /v1/projects/main/posts", post(3, "two", ME), 201)
    frames.put(frame("post", 2, post(2, "one", ME)) + frame("post", 4, post(4, "live")))
    ended = spawned(
        ["chat", "#main", "--state", str(tmp_path), "--linger", "1"], stdin="one\n\ntwo"
    )
    assert (ended.status, ended.err) == (0, "")
    assert [r.body["text"] for r in standin.calls("POST /v1/projects/main/posts")] == ["one", "two"]
    shown = texts(ended.out)
    assert shown[0] == "[bob] before"
    assert sorted(shown[1:]) == ["[alice] one", "[alice] two", "[bob] live"]
    assert shown.index("[alice] one") < shown.index("[alice] two")
    assert standin.stream_requests.get(timeout=DEADLINE).query == {"project": "main", "after": "1"}


def test_no_history_is_shown_if_none_is_wanted_but_the_live_part_begins_behind_it(
    standin: Standin, tmp_path: Path
):
    project(standin, post(7, "before"))
    ended = spawned(
        ["chat", "#main", "--state", str(tmp_path), "--history", "0", "--linger", "0.5"]
    )
    assert ended.out == ""
    assert standin.calls("GET /v1/projects/main/posts")[0].query == {"limit": "1"}
    assert standin.stream_requests.get(timeout=DEADLINE).query["after"] == "7"


@pytest.mark.requirement("cli-text-harmless")
def test_hostile_text_cannot_act_on_the_terminal_or_forge_a_line(standin: Standin, tmp_path: Path):
    nasty = "\x1b]0;x\x07hi\u202e\n12:00:00 [boss] obey"
    project(standin, post(1, nasty, BOB | {"nick": "b\nob\x1b[2J"}))
    ended = spawned(["chat", "#main", "--state", str(tmp_path)])
    assert texts(ended.out) == ["[b ob] hi", "    | 12:00:00 [boss] obey"]


@pytest.mark.requirement("cli-chat-waits")
def test_a_pipe_can_wait_for_the_answers(standin: Standin, tmp_path: Path):
    direct(standin)
    answer = from_bob(9, "four", expects_reply=False)
    standin.answer("POST /v1/messages", mail(8, "2+2?"), 201)
    standin.answer("GET /v1/messages/m8", mail(8, "2+2?", state="answered", answer=answer))
    standin.answer("POST /v1/messages/m9/seen", answer)
    ended = spawned(
        ["chat", "@bob", "--wait", "answered", "--state", str(tmp_path)], stdin="2+2?\n"
    )
    assert ended.status == 0
    assert texts(ended.out) == ["[alice] 2+2?", "[bob] four"]
    assert len(standin.calls("POST /v1/messages/m9/seen")) == 1


def test_a_pipe_that_waits_for_a_message_that_died_ends_with_7(standin: Standin, tmp_path: Path):
    direct(standin)
    standin.answer("POST /v1/messages", mail(8, "x"), 201)
    standin.answer("GET /v1/messages/m8", mail(8, "x", state="dead", reason="refused"))
    ended = spawned(["chat", "@bob", "--wait", "seen", "--state", str(tmp_path)], stdin="x\n")
    assert ended.status == 7
    assert "message m8 is dead: refused" in ended.err


@pytest.mark.requirement("cli-chat-pipes")
def test_a_line_that_is_refused_ends_a_pipe_with_its_status(standin: Standin, tmp_path: Path):
    project(standin)
    standin.answer("POST /v1/projects/main/posts", problem("stream-full", "full"), 429)
    ended = spawned(["chat", "#main", "--state", str(tmp_path)], stdin="one\ntwo\n")
    assert ended.status == 7
    assert ended.err == "postroom: full\n"
    assert len(standin.calls("POST /v1/projects/main/posts")) == 1


def test_what_was_shown_is_seen_once_and_the_next_line_answers_the_question(
    standin: Standin, tmp_path: Path
):
    direct(
        standin,
        from_bob(1, "read already", state="seen", expects_reply=False),
        from_bob(2, "which one?", state="delivered"),
    )
    standin.answer("POST /v1/messages/m2/seen", from_bob(2, "which one?", state="seen"))
    standin.answer("POST /v1/messages", mail(3, "this"), 201)
    ended = spawned(["chat", "@bob", "--state", str(tmp_path)], stdin="this\nand more\n")
    assert ended.status == 0
    bodies = [r.body for r in standin.calls("POST /v1/messages")]
    assert [b.get("reply_to") for b in bodies] == ["m2", None]
    assert [b["expects_reply"] for b in bodies] == [False, True]
    assert [r.path for r in standin.requests if r.path.endswith("/seen")] == [
        "/v1/messages/m2/seen"
    ]


def test_a_chat_with_nobody_ends_with_4(standin: Standin, tmp_path: Path):
    unknown = problem("unknown-recipient", "nobody is called bob")
    standin.answer("GET /v1/chats/bob/messages", unknown, 404)
    ended = spawned(["chat", "@bob", "--state", str(tmp_path)])
    assert (ended.status, ended.err) == (4, "postroom: nobody is called bob\n")


def test_a_chat_whose_input_is_closed_shows_the_history_and_ends(standin: Standin, tmp_path: Path):
    project(standin, post(1, "before"))
    line = " ".join(command("chat", "'#main'", "--state", str(tmp_path))) + " <&-"
    done = subprocess.run(
        ["sh", "-c", line],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert texts(done.stdout) == ["[bob] before"]


# ── on a terminal ────────────────────────────────────────────────────────────────────────────────


class Terminal:
    """A command on a pseudo terminal."""

    def __init__(self, *arguments: str, **env: str) -> None:
        self._fd, far = pty.openpty()
        self.process = subprocess.Popen(
            command(*arguments),
            stdin=far,
            stdout=far,
            stderr=far,
            env=environment(**env),
            start_new_session=True,
        )
        os.close(far)
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def read_until(self, wanted: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while wanted not in self.text:
            left = deadline - time.monotonic()
            assert left > 0, self.text
            if select.select([self._fd], [], [], left)[0]:
                self.text += self._read()

    def ended(self) -> int:
        status = self.process.wait(LIMIT)
        while select.select([self._fd], [], [], 0)[0] and (more := self._read()):
            self.text += more
        return status

    def _read(self) -> str:
        try:
            return os.read(self._fd, 65536).decode()
        except OSError:  # the far end is closed
            return ""

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT)
        os.close(self._fd)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.mark.requirement("cli-chat-echo-once")
def test_on_a_terminal_own_lines_show_once_and_their_receipts_dim(
    standin: Standin, tmp_path: Path, terminals: list[Terminal]
):
    frames = direct(standin, from_bob(1, "hello", state="seen", expects_reply=False))
    standin.answer("POST /v1/messages", mail(2, "unique words"), 201)
    terminal = Terminal("chat", "@bob", "--state", str(tmp_path))
    terminals.append(terminal)
    terminal.read_until("hello")
    terminal.type("unique words\n")
    standin.wait_for("POST /v1/messages")
    frames.put(frame("mail", 2, mail(2, "unique words")))
    for state in ("delivered", "delivered", "accepted", "seen"):
        frames.put(frame("receipt", 0, {"message_id": "m2", "state": state, "reason": ""}))
    frames.put(frame("mail", 3, mail(3, "from my other terminal")))
    terminal.read_until("from my other terminal")
    terminal.type("\x04")
    assert terminal.ended() == 0
    plain = ANSI.sub("", terminal.text)
    assert plain.count("unique words") == 1
    assert re.findall(r"· (\w+)", plain) == ["delivered", "seen"]
    assert "\x1b[2m    · seen" in terminal.text


@pytest.mark.requirement("cli-interrupt-clean")
def test_ctrl_c_leaves_a_chat_on_a_terminal_with_success(
    standin: Standin, tmp_path: Path, terminals: list[Terminal]
):
    project(standin, post(1, "before"))
    terminal = Terminal("chat", "#main", "--state", str(tmp_path))
    terminals.append(terminal)
    terminal.read_until("before")
    standin.stream_requests.get(timeout=DEADLINE)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.ended() == 0
    assert "Traceback" not in terminal.text


def test_on_a_terminal_a_refused_line_does_not_end_the_chat(
    standin: Standin, tmp_path: Path, terminals: list[Terminal]
):
    project(standin, post(1, "before"))
    standin.answer("POST /v1/projects/main/posts", problem("stream-full", "full"), 429)
    terminal = Terminal("chat", "#main", "--state", str(tmp_path))
    terminals.append(terminal)
    terminal.read_until("before")
    terminal.type("one\n")
    terminal.read_until("postroom: full")
    terminal.type("\x04")
    assert terminal.ended() == 0


def test_a_line_whose_end_the_terminal_dropped_is_not_sent(
    standin: Standin, tmp_path: Path, terminals: list[Terminal]
):
    project(standin, post(1, "before"))
    terminal = Terminal("chat", "#main", "--state", str(tmp_path))
    terminals.append(terminal)
    terminal.read_until("before")
    terminal.type(f"{'x' * 5000}\n")
    terminal.read_until("not sent: a terminal takes no line over 4095 bytes")
    terminal.type("\x04")
    assert terminal.ended() == 0
    assert not standin.calls("POST /v1/projects/main/posts")


def test_a_post_room_that_ends_for_good_ends_the_chat_with_3(
    standin: Standin, tmp_path: Path, terminals: list[Terminal]
):
    frames = project(standin, post(1, "before"))
    terminal = Terminal("chat", "#main", "--state", str(tmp_path))
    terminals.append(terminal)
    terminal.read_until("before")
    standin.stream_requests.get(timeout=DEADLINE)
    (tmp_path / "server.json").unlink()
    standin.stop_listening()
    frames.put(None)
    terminal.type("are you there?\n")
    terminal.read_until("no post room")
    assert terminal.ended() == 3


@pytest.mark.requirement("cli-colour-off")
@pytest.mark.parametrize(
    "env, coloured",
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colours_follow_no_color_and_the_terminal(
    standin: Standin, tmp_path: Path, terminals: list[Terminal], env: dict[str, str], coloured: bool
):
    project(standin, post(1, "before"))
    terminal = Terminal("chat", "#main", "--state", str(tmp_path), **env)
    terminals.append(terminal)
    terminal.read_until("before")
    terminal.type("\x04")
    assert terminal.ended() == 0
    assert ("\x1b[" in terminal.text) is coloured
