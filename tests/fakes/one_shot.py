"""A scripted coding agent that is started for each turn, without a model: it prints what its arguments are those of.

    exec --json [resume ID] -                               Codex
    --output-format stream-json [--resume ID]               Gemini CLI
    run --format json [--session ID]                        OpenCode
    run --output-format stream-json --name ID [--resume]    Goose

Plain Python without a dependency. It reads the prompt from its standard input, to the end. A session is a file below
`$HOME/.coder`, as `coder.py` has it; without that file a session cannot be resumed. What a turn does stands in its
prompt:

    SLOW           works until it is interrupted, and then notes that in the file `interrupted`
    WAIT:[file]    waits until that file exists
    QUIT:[code]    ends with that exit code and without a result
    DIE:[file]     kills itself if the file does not exist, and makes it
    BIG:[bytes]    prints a line of that length that means nothing

and it answers `heard: <what others have said>`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

STEP = re.compile(r"\b(SLOW|WAIT|QUIT|DIE|BIG)\b(?::\[(.*?)\])?")
QUOTED = re.compile(r"^-----8<----- .*?\n(.*?)\n----->8----- .*?$", re.MULTILINE | re.DOTALL)
"""The part of a prompt that others have said (`sidecar.turns.prompts`)."""
INPUT, OUTPUT = 100, 10
"""Tokens of a turn."""


def say(**record: Any) -> None:
    """Print one line."""
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


class Codex:
    """Lines as `codex exec --json` prints them; it counts since its session began."""

    def begin(self, session: str) -> None:
        """The first lines."""
        say(type="thread.started", thread_id=session)
        say(type="turn.started")

    def end(self, text: str, turns: int) -> None:
        """The last lines of the session's turn with that number."""
        say(type="item.completed", item={"id": "i", "type": "agent_message", "text": text})
        used = {"input_tokens": turns * INPUT, "output_tokens": turns * OUTPUT}
        say(type="turn.completed", usage=used)


class Gemini:
    """Lines as `gemini --output-format stream-json` prints them."""

    def begin(self, session: str) -> None:
        """The first line."""
        say(type="init", session_id=session, model="scripted-1")

    def end(self, text: str, turns: int) -> None:
        """The last lines of a turn."""
        say(type="message", role="assistant", content=text, delta=True)
        say(type="result", status="success", stats={"input_tokens": INPUT, "output_tokens": OUTPUT})


class OpenCode:
    """Lines as `opencode run --format json` prints them: none of them is a result."""

    def __init__(self) -> None:
        self.session = ""

    def begin(self, session: str) -> None:
        """The first line."""
        self.session = session
        self.say("step_start")

    def end(self, text: str, turns: int) -> None:
        """The last lines of a turn."""
        self.say("text", text=text)
        self.say("step_finish", reason="stop", tokens={"input": INPUT, "output": OUTPUT})

    def say(self, kind: str, **part: Any) -> None:
        """Print one line."""
        say(type=kind, sessionID=self.session, part={"type": kind, **part})


class Goose:
    """Lines as `goose run --output-format stream-json` prints them: none of them names the session."""

    def begin(self, session: str) -> None:
        """Nothing."""

    def end(self, text: str, turns: int) -> None:
        """All lines of a turn."""
        content = [{"type": "text", "text": text}]
        say(type="message", message={"id": "m", "role": "assistant", "content": content})
        say(type="complete", input_tokens=INPUT, output_tokens=OUTPUT)


def asked(words: list[str]) -> tuple[Codex | Gemini | OpenCode | Goose, str, bool]:
    """Whose arguments these are, the session, and whether it is to go on."""
    after = dict(pairwise(words))
    new = str(uuid.uuid4())
    if "exec" in words:
        return Codex(), after.get("resume", new), "resume" in words
    if "--name" in words:
        return Goose(), after["--name"], "--resume" in words
    if "run" in words:
        return OpenCode(), after.get("--session", new), "--session" in words
    return Gemini(), after.get("--resume", new), "--resume" in words


def interrupted(*_: object) -> None:
    """End at once, without a closing line, as both programs do."""
    Path("interrupted").touch()
    os._exit(130)


def wait(file: str) -> None:
    """Wait for the file; ends with whoever started this program."""
    starter = os.getppid()
    while not (file and Path(file).exists()):
        if os.getppid() != starter:
            sys.exit(1)
        time.sleep(0.02)


def work(step: str, argument: str) -> None:
    """Do what a word of the prompt says."""
    match step:
        case "SLOW" | "WAIT":
            wait(argument)
        case "QUIT":
            sys.stderr.write("out of tokens\n")
            sys.exit(int(argument))
        case "DIE" if not Path(argument).exists():
            Path(argument).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        case "BIG":
            sys.stdout.write("x" * int(argument) + "\n")


def main() -> None:
    """One turn."""
    signal.signal(signal.SIGINT, interrupted)
    agent, session, resumed = asked(sys.argv[1:])
    file = Path.home() / ".coder" / f"{session}.jsonl"
    if resumed and not file.exists():
        sys.exit(f"no session {session}")
    prompt = sys.stdin.read()
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as kept:
        kept.write(json.dumps({"role": "user", "text": prompt}) + "\n")
    agent.begin(session)
    said = "\n".join(QUOTED.findall(prompt))
    for step, argument in STEP.findall(said):
        work(step, argument)
    agent.end(f"heard: {said}", len(file.read_text().splitlines()))


if __name__ == "__main__":
    main()
