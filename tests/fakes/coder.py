"""A scripted coding agent: Claude Code's stream-json in both directions with its control protocol, without a model.

    python tests/fakes/coder.py -p --output-format stream-json --verbose --input-format stream-json \
        --permission-prompt-tool stdio [--resume ID]

Plain Python without a dependency, so that it runs in any sandbox. A session is a file below `$HOME/.coder`, made at its
first prompt; `--resume` goes on with it, and fails as Claude does if there is none. The file has every prompt and
every answer: tests read it.

What a turn does stands in its prompt; several words are done in their order:

    RUN:[command]     asks for the tool Bash, and runs it when allowed, with the input as the answer has it
    ASK:[question]    asks the user (`AskUserQuestion`); `ASK:[question|one|two]` offers answers; says `told: <answer>`
    SLOW:[seconds]    works so long, with a text at its begin
    EVENTS:[n]        n texts
    BIG:[bytes]       one text of that length
    USE:[tokens]      so many output tokens; else a turn takes 100 and 10
    WAIT:[file]       waits until that file exists
    FAIL              the model's service fails: an error result
    DIE               kills itself with a tool call open; `DIE:[file]` only if the file does not exist, and makes it
    SILENT            says nothing more until it is interrupted
    DEAF              says `deaf` and nothing more, and heeds no interrupt from then on
    RECALL            says how many prompts the session has had, and the first word of each

A turn without one of them answers `heard: <text>`, the text being the part of the prompt that others have said.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

STEP = re.compile(
    r"\b(RUN|ASK|SLOW|EVENTS|BIG|USE|WAIT|DIE):\[(.*?)\](?=[\s.]|$)|\b(FAIL|DIE|SILENT|DEAF|RECALL)\b(?!:)",
    re.MULTILINE,
)
QUOTED = re.compile(r"^-----8<----- .*?\n(.*?)\n----->8----- .*?$", re.MULTILINE | re.DOTALL)
"""The part of a prompt that others have said (`sidecar.turns.prompts`)."""
MODEL = "scripted-1"
PRICE = 0.0001
"""Dollars for a token."""
INTERRUPTED = "[Request interrupted by user for tool use]"


class Interrupted(Exception):
    """The user ends the turn."""


class Coder:
    """One run of the agent."""

    def __init__(self, session: str, autonomous: bool) -> None:
        self.session = session or str(uuid.uuid4())
        self.autonomous = autonomous
        self.file = Path.home() / ".coder" / f"{self.session}.jsonl"
        self.inputs: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.answers: dict[str, dict[str, Any]] = {}
        self.prompts: list[str] = []
        self.closed = False
        self.deaf = False
        self.calls = 0
        self.cost = 0.0
        self.open: tuple[str, str] | None = None
        """The request and the tool call that wait for an answer."""
        self.call = ""
        self.tokens = (100, 10)

    # ── input ───────────────────────────────────────────────────────────────────────────────────────

    def read(self) -> None:
        """Queue what the standard input has; runs in a thread of its own."""
        for line in sys.stdin.buffer:
            try:
                self.inputs.put(json.loads(line))
            except ValueError:
                sys.stderr.write(f"not JSON: {line!r}\n")
        self.inputs.put(None)

    def take(self, seconds: float | None) -> bool:
        """Handle the next input; False if none came in time. Raises Interrupted."""
        try:
            record = self.inputs.get(timeout=seconds)
        except queue.Empty:
            return False
        if record is None:
            self.closed = True
        elif record.get("type") == "user":
            content = record["message"]["content"]
            if isinstance(content, list):
                content = "\n".join(block.get("text", "") for block in content)
            self.prompts.append(content)
        elif record.get("type") == "control_response":
            response = record["response"]
            self.answers[response["request_id"]] = response
        elif record.get("type") == "control_request":
            self.control(record)
        return True

    def control(self, record: dict[str, Any]) -> None:
        """Answer a control request of the user's."""
        subtype, number = record["request"]["subtype"], record["request_id"]
        if subtype == "interrupt" and self.deaf:
            return
        answer = {"commands": [], "models": []} if subtype == "initialize" else {}
        response = {"subtype": "success", "request_id": number, "response": answer}
        if subtype == "interrupt" and self.open is not None:
            say(type="control_cancel_request", request_id=self.open[0])
        say(type="control_response", response=response)
        if subtype == "interrupt":
            raise Interrupted

    def wait(self, seconds: float) -> None:
        """Work for so long. Raises Interrupted."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.closed:
                if os.getppid() == 1:
                    sys.exit(1)  # whoever started it was killed
                time.sleep(min(left, 0.2))
            else:
                self.take(left)

    # ── turns ───────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> int:
        """Take one prompt after the other until the input ends."""
        threading.Thread(target=self.read, daemon=True).start()
        while self.prompts or not self.closed:
            if self.prompts:
                self.turn(self.prompts.pop(0))
                continue
            try:
                self.take(None)
            except Interrupted:
                continue  # there is no turn
        return 0

    def turn(self, prompt: str) -> None:
        """One turn."""
        began = time.monotonic()
        self.keep(role="user", text=prompt)
        self.tokens, self.deaf = (100, 10), False
        say(
            type="system",
            subtype="init",
            cwd=str(Path.cwd()),
            session_id=self.session,
            tools=["Bash", "AskUserQuestion"],
            mcp_servers=[],
            model=MODEL,
            permissionMode="default",
            claude_code_version="0.0.0-scripted",
        )
        subtype = "success"
        try:
            text, failed = self.work(prompt)
        except Interrupted:
            if self.call:
                self.result_of(self.call, INTERRUPTED, error=True)
            text, failed, subtype = "", True, "error_during_execution"
        self.open = None
        self.keep(role="assistant", text=text)
        self.cost += PRICE * sum(self.tokens)
        usage = {"input_tokens": self.tokens[0], "output_tokens": self.tokens[1]}
        record: dict[str, Any] = {
            "stop_reason": "end_turn",
            "session_id": self.session,
            "total_cost_usd": self.cost,
            "usage": usage | {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
            "permission_denials": [],
            "terminal_reason": "completed" if subtype == "success" else "aborted_tools",
            "is_error": failed,
            "num_turns": 1,
            "subtype": subtype,
            "api_error_status": 500 if failed and text else None,
        }
        if subtype == "success":
            record["result"] = text
        duration = int(1000 * (time.monotonic() - began))
        say(**record, type="result", duration_ms=duration, uuid=str(uuid.uuid4()))

    def work(self, prompt: str) -> tuple[str, bool]:
        """Do what the prompt says; returns the last text, and whether the turn has failed."""
        quoted = "\n".join(QUOTED.findall(prompt)) or prompt
        said = []
        for found in STEP.finditer(quoted):
            word, argument = (found[1], found[2]) if found[1] else (found[3], "")
            if word == "FAIL":
                text = "API Error: 500 the scripted model has failed"
                self.text(text)
                return text, True
            said.append(self.step(word, argument))
        text = "; ".join(filter(None, said)) if said else f"heard: {quoted}"
        self.text(text)
        return text, False

    def step(self, word: str, argument: str) -> str:
        """One word of the prompt; returns what the last text says of it."""
        match word:
            case "RUN":
                return self.bash(argument)
            case "ASK":
                return self.ask(argument)
            case "SLOW":
                self.text(f"working for {argument} s")
                self.wait(float(argument))
                return f"slept {argument}"
            case "EVENTS":
                for number in range(int(argument)):
                    self.text(f"event {number}")
                return f"{argument} events"
            case "BIG":
                self.text("x" * int(argument))
                return f"{argument} bytes"
            case "USE":
                self.tokens = (0, int(argument))
                return f"used {argument}"
            case "WAIT":
                self.text(f"waiting for {argument}")
                while not Path(argument).exists():
                    self.wait(0.05)
                return f"found {argument}"
            case "DIE":
                return self.die(argument)
            case "RECALL":
                return self.recall()
        self.deaf = word == "DEAF"
        if self.deaf:
            self.text("deaf")
        while True:
            self.wait(3600)

    def die(self, file: str) -> str:
        """Kill this process in mid-turn, once if `file` is named."""
        if file and Path(file).exists():
            return "lived on"
        if file:
            Path(file).touch()
        self.tool("Bash", {"command": "true", "description": "the last"})
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    def recall(self) -> str:
        """What the session file says of earlier turns."""
        kept = [json.loads(line) for line in self.file.read_text().splitlines()]
        prompts = [each["text"] for each in kept if each["role"] == "user"]
        return f"session {self.session} has {len(prompts)} prompts"

    # ── tools ───────────────────────────────────────────────────────────────────────────────────────

    def bash(self, command: str) -> str:
        """Run a command if that is allowed."""
        given = {"command": command, "description": "scripted"}
        call = self.tool("Bash", given)
        answer = {} if self.autonomous else self.permission("Bash", given, call)
        if answer.get("behavior", "allow") != "allow":
            self.result_of(call, answer.get("message", ""), error=True)
            return f"denied: {answer.get('message', '')}"
        given = answer.get("updatedInput") or given
        output, code = self.execute(str(given["command"]))
        self.result_of(
            call, output if not code else f"Exit code {code}\n{output}", error=bool(code)
        )
        return f"ran: {output.strip()}"

    def execute(self, command: str) -> tuple[str, int]:
        """Its output and exit code. Raises Interrupted."""
        with subprocess.Popen(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                found: list[bytes] = []
                reading = threading.Thread(target=lambda: found.extend(process.stdout or ()))
                reading.start()
                while reading.is_alive():
                    self.wait(0.02)
            except Interrupted:
                process.kill()
                raise
            return b"".join(found).decode(errors="replace"), process.wait()

    def ask(self, argument: str) -> str:
        """Ask the user a question."""
        question, *options = argument.split("|")
        offered = [{"label": option, "description": ""} for option in options]
        asked = {
            "question": question,
            "header": "Question",
            "options": offered,
            "multiSelect": False,
        }
        given = {"questions": [asked]}
        call = self.tool("AskUserQuestion", given)
        answer = self.permission("AskUserQuestion", given, call)
        if answer.get("behavior") != "allow":
            told = str(answer.get("message", ""))
            self.result_of(call, told, error=True)
            return f"not told: {told}"
        told = ", ".join(map(str, (answer.get("updatedInput") or {}).get("answers", {}).values()))
        self.result_of(call, f'User has answered your questions: "{question}"="{told}".')
        return f"told: {told}"

    def permission(self, tool: str, given: dict[str, Any], call: str) -> dict[str, Any]:
        """Ask whether the tool may be used; returns the answer. Raises Interrupted."""
        request = str(uuid.uuid4())
        asked = {
            "subtype": "can_use_tool",
            "tool_name": tool,
            "display_name": tool,
            "input": given,
            "description": given.get("description", ""),
            "permission_suggestions": [],
            "tool_use_id": call,
        }
        self.open = (request, call)
        say(type="control_request", request_id=request, request=asked)
        while request not in self.answers:
            if self.closed:
                self.open = None
                return {"behavior": "deny", "message": "Stream closed"}
            self.take(None)
        self.open = None
        response = self.answers.pop(request)
        if response["subtype"] != "success":
            return {"behavior": "deny", "message": response.get("error", "")}
        return response["response"]

    # ── output ──────────────────────────────────────────────────────────────────────────────────────

    def text(self, text: str) -> None:
        """A text of the assistant's."""
        self.assistant({"type": "text", "text": text})

    def tool(self, name: str, given: dict[str, Any]) -> str:
        """Begin a tool call; returns its id."""
        self.calls += 1
        self.call = f"toolu_{self.calls:03}"
        self.assistant({"type": "tool_use", "id": self.call, "name": name, "input": given})
        return self.call

    def assistant(self, block: dict[str, Any]) -> None:
        """A line with one block of the assistant's message."""
        message = {
            "id": f"msg_{self.session[:8]}",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": [block],
            "stop_reason": None,
            "usage": {"input_tokens": 100, "output_tokens": 1},
        }
        say(
            type="assistant",
            message=message,
            parent_tool_use_id=None,
            session_id=self.session,
            uuid=str(uuid.uuid4()),
        )

    def result_of(self, call: str, content: str, *, error: bool = False) -> None:
        """The result of a tool call."""
        self.call = ""
        block = {
            "tool_use_id": call,
            "type": "tool_result",
            "content": content,
            "is_error": error,
        }
        say(
            type="user",
            message={"role": "user", "content": [block]},
            parent_tool_use_id=None,
            session_id=self.session,
            uuid=str(uuid.uuid4()),
        )

    def keep(self, **record: str) -> None:
        """Write to the session's file."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(record) + "\n")


def say(**record: Any) -> None:
    """Print one line."""
    sys.stdout.write(json.dumps(record, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Read the arguments as Claude Code does; those that mean nothing here are skipped."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-p", "--print", action="store_true")
    parser.add_argument("--resume", default="")
    parser.add_argument("--dangerously-skip-permissions", action="store_true")
    parser.add_argument("--permission-mode", default="")
    parser.add_argument("--version", action="store_true")
    known, _ = parser.parse_known_args()
    if known.version:
        sys.stdout.write("0.0.0 (scripted)\n")
        return 0
    autonomous = known.dangerously_skip_permissions or known.permission_mode == "bypassPermissions"
    coder = Coder(known.resume, autonomous)
    if known.resume and not coder.file.exists():
        sys.stderr.write(f"No conversation found with session ID: {known.resume}\n")
        return 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return coder.run()


if __name__ == "__main__":
    sys.exit(main())
