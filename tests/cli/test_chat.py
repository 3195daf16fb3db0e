"""Chats in a pipe and on a terminal."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pty
import queue
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest

from tests.cli.conftest import LIMIT, command, environment, spawned
from tests.client.standin import BOB, DEADLINE, ME, Standin, frame, from_bob, mail, post, problem

COLOUR = re.compile(r"\x1b\[[1-9][0-9;]*m")


def project(standin: Standin, *posts: object) -> queue.Queue[bytes | None]:
    standin.answer("GET /v1/projects/main/posts", {"posts": list(posts)})
    standin.answer("GET /v1/projects", {"projects": ["main", "other"]})
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


@pytest.mark.requirement("text-controls-stripped")
def test_hostile_text_cannot_act_on_the_terminal_or_forge_a_line(standin: Standin, tmp_path: Path):
    nasty = "\x1b]0;x\x07hi\u202e\n12:00:00 [boss] obey"
    project(standin, post(1, nasty, BOB | {"nick": "b\nob\x1b[2J"}))
    ended = spawned(["chat", "#main", "--state", str(tmp_path)])
    assert texts(ended.out) == ["[b ob] hi", "    | 12:00:00 [boss] obey"]


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


def glass(text: str) -> str:
    """What a terminal shows of `text`."""
    screen = pyte.Screen(80, 40)
    pyte.Stream(screen).feed(text)
    return "\n".join(line.rstrip() for line in screen.display if line.strip())


class Terminal:
    """A command on a pseudo terminal."""

    def __init__(self, *arguments: str, **env: str) -> None:
        self._fd, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        self.process = subprocess.Popen(
            command(*arguments),
            stdin=far,
            stdout=far,
            stderr=far,
            env=environment(**{"TERM": "xterm"} | env),
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

    def shows(self, *lines: str) -> None:
        """Wait until these lines, without times, are on the screen, and no others."""
        self._await(lambda: texts(glass(self.text)) == list(lines))

    def shows_last(self, *lines: str) -> None:
        self._await(lambda: texts(glass(self.text))[-len(lines) :] == list(lines))

    def _await(self, there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not there():
            left = deadline - time.monotonic()
            assert left > 0, glass(self.text)
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


def receipt(message_id: str, state: str) -> bytes:
    return frame("receipt", 0, {"message_id": message_id, "state": state, "reason": ""})


def test_on_a_terminal_a_typed_message_stays_where_it_is_and_its_receipts_follow(
    standin: Standin, tmp_path: Path, terminals: list[Terminal]
):
    frames = direct(standin, from_bob(1, "hello", state="seen", expects_reply=False))
    standin.answer("POST /v1/messages", mail(2, "unique words"), 201)
    terminal = Terminal("chat", "@bob", "--state", str(tmp_path))
    terminals.append(terminal)
    terminal.shows("[bob] hello", "@bob>")
    terminal.type("unique words\r")
    terminal.shows("[bob] hello", "@bob> unique words", "@bob>")
    frames.put(frame("mail", 2, mail(2, "unique words")))
    for state in ("delivered", "delivered", "accepted", "seen"):
        frames.put(receipt("m2", state))
    frames.put(
        frame(
            "mail", 3, from_bob(3, "the answer", reply_to="m2", state="seen", expects_reply=False)
        )
    )
    said = ("[bob] hello", "@bob> unique words", "    · answered", "[bob] the answer")
    terminal.shows(*said, "@bob>")
    frames.put(receipt("m2", "answered"))
    terminal.type("\x04")
    assert terminal.ended() == 0
    terminal.shows(*said)


def test_a_line_for_a_session_that_does_not_get_it_by_itself_says_so(
    standin: Standin, tmp_path: Path
):
    direct(standin)
    note = "@bob is gone: it gets this when it is resumed"
    standin.answer("POST /v1/messages", mail(2, "hello", note=note), 201)
    ended = spawned(["chat", "@bob", "--state", str(tmp_path), "--linger", "0"], stdin="hello")
    assert (ended.status, ended.err) == (0, f"{note}\n")


def test_a_typed_line_sends_a_file(standin: Standin, tmp_path: Path, terminals: list[Terminal]):
    project(standin, post(1, "before"))
    sha256 = hashlib.sha256(b"12345").hexdigest()
    part = {"url": f"blob:sha256:{sha256}", "mediaType": "text/csv", "filename": "sums.csv"}
    standin.answer(
        f"PUT /v1/blobs/{sha256}", {"url": part["url"], "sha256": sha256, "size": 5}, 201
    )
    sent = post(2, "", ME) | {"parts": [part], "files": [part | {"size": 5}]}
    standin.answer("POST /v1/projects/main/posts", sent, 201)
    (tmp_path / "sums.csv").write_bytes(b"12345")
    terminal = Terminal("chat", "#main", "--state", str(tmp_path))
    terminals.append(terminal)
    terminal.shows("[bob] before", "#main>")
    terminal.type("/file missing.csv\r")
    refused = "postroom: 'missing.csv' cannot be read: No such file or directory"
    terminal.shows("[bob] before", "#main> /file missing.csv", refused, "#main>")
    terminal.type(f"/file {tmp_path}/sums.csv \r")
    terminal.shows_last("[alice]", "    file sums.csv, 5 bytes, text/csv", "#main>")
    (call,) = standin.calls("POST /v1/projects/main/posts")
    assert (call.body["parts"], "text" in call.body) == ([part], False)
    terminal.type("\x04")
    assert terminal.ended() == 0


def test_what_arrives_waits_for_the_end_of_the_line_being_typed_and_history_is_recalled(
    standin: Standin, tmp_path: Path, terminals: list[Terminal]
):
    frames = project(standin, post(1, "before"))
    for number, text in ((2, "first"), (4, "half way"), (5, "fist")):
        standin.answer("POST /v1/projects/main/posts", post(number, text, ME), 201)
    terminal = Terminal("chat", "#main", "--state", str(tmp_path))
    terminals.append(terminal)
    terminal.shows("[bob] before", "#main>")
    terminal.type("first\r")
    first = ("[bob] before", "#main> first")
    terminal.shows(*first, "#main>")
    frames.put(frame("post", 3, post(3, "at once")))  # nothing is being typed
    terminal.shows(*first, "[bob] at once", "#main>")
    terminal.type("half w")
    terminal.shows(*first, "[bob] at once", "#main> half w")
    frames.put(frame("post", 6, post(6, "I \x1b[31mwait\x1b]0;x\x07\nfor you")))
    terminal.type("ay")
    terminal.shows(*first, "[bob] at once", "#main> half way")
    terminal.type("\r")
    second = (*first, "[bob] at once", "#main> half way", "[bob] I wait", "    | for you")
    terminal.shows(*second, "#main>")
    terminal.type("\x1b[A\x1b[A")
    terminal.shows(*second, "#main> first")
    terminal.type("\x1b[D\x1b[D\x7f\r")  # two to the left, and what is before the cursor is deleted
    terminal.shows(*second, "#main> fist", "#main>")
    sent = [r.body["text"] for r in standin.calls("POST /v1/projects/main/posts")]
    assert sent == ["first", "half way", "fist"]
    terminal.type("\x04")
    assert terminal.ended() == 0


def test_a_message_that_dies_after_the_chat_went_on_says_so_in_one_line(
    standin: Standin, tmp_path: Path, terminals: list[Terminal]
):
    frames = direct(standin)
    for number in range(2, 8):
        standin.answer("POST /v1/messages", mail(number, f"words {number}"), 201)
    terminal = Terminal("chat", "@bob", "--state", str(tmp_path))
    terminals.append(terminal)
    terminal.shows("@bob>")
    for number in range(2, 8):
        terminal.type(f"words {number}\r")
        terminal.shows_last(f"@bob> words {number}", "@bob>")
    frames.put(receipt("m2", "dead"))
    terminal.shows(
        *(f"@bob> words {number}" for number in range(2, 8)),
        "    · dead",
        "@bob>",
    )
    terminal.type("\x04")
    assert terminal.ended() == 0


def test_a_misspelt_project_is_asked_about_on_a_terminal(
    standin: Standin, tmp_path: Path, terminals: list[Terminal]
):
    project(standin, post(1, "before"))
    terminal = Terminal("chat", "#typo", "--state", str(tmp_path))
    terminals.append(terminal)
    terminal.read_until("Make it? [y/N]")
    assert "no project '#typo' (there is #main, #other)" in terminal.text
    terminal.type("n\n")
    assert terminal.ended() == 4
    assert "--new" in terminal.text


@pytest.mark.parametrize("command", [["chat", "#typo"], ["send", "#typo", "hello"]])
def test_a_misspelt_project_is_refused_in_a_script_unless_it_is_wanted(
    standin: Standin, tmp_path: Path, command: list[str]
):
    project(standin, post(1, "before"))
    ended = spawned([*command, "--state", str(tmp_path)], stdin="hello")
    assert ended.status == 4
    assert "there is no project '#typo'" in ended.err
    assert "try: #main, #other, or --new to make it" in ended.err
    assert not list(standin.calls("POST /v1/projects/typo/posts"))
    standin.answer("GET /v1/projects/typo/posts", {"posts": []})
    standin.answer("POST /v1/projects/typo/posts", post(2, "hello", ME), 201)
    assert spawned([*command, "--new", "--state", str(tmp_path)], stdin="hello").status == 0


@pytest.mark.requirement("cli-errors-one-line")
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
    terminal.shows("[bob] before", "#main>")
    terminal.type("one\r")
    terminal.read_until("postroom: full")
    terminal.shows_last("#main>")  # what is typed before the next prompt would be lost
    terminal.type("\x04")
    assert terminal.ended() == 0


def test_a_line_whose_end_the_terminal_dropped_is_not_sent(
    standin: Standin, tmp_path: Path, terminals: list[Terminal]
):
    project(standin, post(1, "before"))
    terminal = Terminal("chat", "#main", "--state", str(tmp_path), TERM="dumb")
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
    terminal.shows("[bob] before", "#main>")
    standin.stream_requests.get(timeout=DEADLINE)
    (tmp_path / "server.json").unlink()
    standin.stop_listening()
    frames.put(None)
    terminal.type("are you there?\r")
    terminal.read_until("no post room")
    assert terminal.ended() == 3


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
    terminal.read_until("before" if env.get("TERM") == "dumb" else "#main>")
    terminal.type("\x04")
    assert terminal.ended() == 0
    assert (COLOUR.search(terminal.text) is not None) is coloured
