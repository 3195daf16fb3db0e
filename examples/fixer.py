"""Agent `fixer`: an example of a coding agent. It has no model: it follows a script, and says so.

Usage: fixer.py FOLDER PAUSE ... [--resume SESSION]. It speaks Claude Code's lines of JSON (stream-json both ways, with
the control protocol), so Postroom runs it with the adapter `claude`: what it does becomes events, it asks before it
uses a tool, and it asks what it cannot know. What it does is real: it reads the repository that it is in, runs its
tests, has a colleague review it, edits a file and commits.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from lines import Inbox, say

FILE = Path("price.py")
OLD = "    return price - price * percent // 100"
REFUSE = """\
    if not 0 <= percent <= 100:
        raise ValueError(f"no discount of {percent} %")
    return price - price * percent // 100"""
CLAMP = "    return max(0, price - price * percent // 100)"

QUESTION = "What of a discount of more than 100 %?"
REFUSED, ZERO = "refuse it", "make the price 0"

TESTS = "python3 -m unittest -q"
COMMIT = "git commit -qam 'A discount makes no price negative'"
SKILL = "review-python-source"

HELP = (
    "I am an example, a script without a model. I know one repository: its discounts can make a price negative. "
    "Give me a task with the word discount in it."
)

_SAID = re.compile(r"^-----8<----- .*?\n(.*?)\n----->8----- ", re.MULTILINE | re.DOTALL)
"""In a prompt, what others have said (docs/agents.md)."""


class Interrupted(Exception):
    """The person ends the turn."""


class Agent:
    """One run of the agent.

    Args:
        session: the one to go on with, "" for a new one.
        pause: seconds between two steps, so that a person can follow.
    """

    def __init__(self, session: str, pause: float) -> None:
        self.session = session or str(uuid.uuid4())
        self._pause = pause
        self._inbox = Inbox()
        self._calls = self._status = 0
        self._prompts: list[str] = []
        self._answers: dict[str, dict[str, Any]] = {}

    def run(self) -> None:
        """Take one prompt after the other until the input ends."""
        while not self._inbox.over:
            try:
                self._take()
            except Interrupted:
                continue  # there is no turn
            while self._prompts:
                self._turn(self._prompts.pop(0))

    def _turn(self, prompt: str) -> None:
        say(type="system", subtype="init", session_id=self.session, model="a script")
        text, end = "", {"subtype": "success", "is_error": False}
        try:
            said = "\n".join(_SAID.findall(prompt)) or prompt
            text = self._mend() if "discount" in said.lower() else HELP
            self._say(text)
        except Interrupted:
            end = {
                "subtype": "error_during_execution",
                "is_error": True,
                "terminal_reason": "aborted_tools",
            }
        say(type="result", session_id=self.session, result=text, usage={}, **end)

    # ── what it does ──

    def _mend(self) -> str:
        """Mend the discount; returns what came of it."""
        self._say("I look at the code, and run the tests first.")
        self._use("Read", {"file_path": str(FILE)})
        if OLD not in FILE.read_text(encoding="utf-8"):
            return f"{FILE} has no such mistake (any more)."
        self._bash(TESTS, "Run the tests")
        self._say("One fails: a large discount makes a price negative. I have the whole reviewed.")
        review = (
            f"postroom-agent delegate --skill {SKILL} {shlex.quote(f'Review {sys.argv[1]}')} --wait"
        )
        self._bash(review, "Ask a colleague")
        told = self._ask(QUESTION, REFUSED, ZERO)
        new = CLAMP if "0" in told or "zero" in told.lower() else REFUSE
        self._say(f"You said: {told}. This is the change.")
        change = {"file_path": str(FILE), "old_string": OLD, "new_string": new}
        refused = self._use("Edit", change)
        if refused is not None:
            return f"I have changed nothing, since you said no{': ' if refused else ''}{refused}"
        if self._bash(TESTS, "Run the tests again"):
            return "The tests still fail with that change; I have not committed it."
        if self._bash(COMMIT, "Commit"):
            return f"{FILE} is mended and not committed."
        return f"{FILE} is mended, the tests pass, and it is committed on my branch."

    def _bash(self, command: str, why: str) -> int:
        """Run a command; its exit status, or -1 if it was not allowed."""
        self._status = -1
        self._use("Bash", {"command": command, "description": why})
        return self._status

    def _use(self, tool: str, given: dict[str, Any]) -> str | None:
        """Use a tool if that is allowed; None, or why it was not."""
        call = self._call(tool, given)
        answer = self._permission(tool, given, call)
        if answer.get("behavior") != "allow":
            refusal = str(answer.get("message", ""))
            self._result(call, refusal, error=True, denied=True)
            return refusal
        tools = {"Read": self._read_file, "Edit": self._edit, "Bash": self._shell}
        try:
            output = tools[tool](answer.get("updatedInput") or given)
        except (ToolError, OSError) as error:
            self._result(call, str(error), error=True)
        else:
            self._result(call, output)
        return None

    def _read_file(self, given: dict[str, Any]) -> str:
        return Path(given["file_path"]).read_text(encoding="utf-8")

    def _edit(self, given: dict[str, Any]) -> str:
        path = Path(given["file_path"])
        text = path.read_text(encoding="utf-8")
        if given["old_string"] not in text:
            raise ToolError(f"{path} does not have that text")
        path.write_text(text.replace(given["old_string"], given["new_string"], 1), encoding="utf-8")
        return f"{path} is changed"

    def _shell(self, given: dict[str, Any]) -> str:
        with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
            with subprocess.Popen(
                ["sh", "-c", str(given["command"])],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as run:
                try:
                    while run.poll() is None:
                        self._wait(0.05)
                except Interrupted:
                    run.kill()
                    raise
            output.seek(0)
            said, self._status = output.read(), run.returncode
        if self._status:
            raise ToolError(f"Exit code {self._status}\n{said}")
        return said

    def _ask(self, question: str, *options: str) -> str:
        """What the person answers."""
        offered = [{"label": option, "description": ""} for option in options]
        asked = {"question": question, "header": "", "options": offered, "multiSelect": False}
        given = {"questions": [asked]}
        call = self._call("AskUserQuestion", given)
        answer = self._permission("AskUserQuestion", given, call)
        answers = (answer.get("updatedInput") or {}).get("answers") or {}
        told = ", ".join(map(str, answers.values())) or str(answer.get("message", ""))
        self._result(call, f"The person says: {told}")
        return told

    # ── the lines ──

    def _say(self, text: str) -> None:
        self._wait(self._pause)
        self._assistant({"type": "text", "text": text})

    def _call(self, tool: str, given: dict[str, Any]) -> str:
        self._wait(self._pause)
        self._calls += 1
        call = f"call-{self._calls}-{uuid.uuid4().hex[:8]}"
        self._assistant({"type": "tool_use", "id": call, "name": tool, "input": given})
        return call

    def _assistant(self, block: dict[str, Any]) -> None:
        message = {"role": "assistant", "content": [block]}
        say(type="assistant", message=message, session_id=self.session)

    def _result(self, call: str, text: str, *, error: bool = False, denied: bool = False) -> None:
        block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": error}
        meta = [{"id": call, "permission_decision": {"decision": "reject"}}] if denied else []
        message = {"role": "user", "content": [block]}
        say(type="user", message=message, session_id=self.session, tool_result_meta=meta)

    def _permission(self, tool: str, given: dict[str, Any], call: str) -> dict[str, Any]:
        """The answer to whether the tool may be used."""
        request = str(uuid.uuid4())
        asked = {"subtype": "can_use_tool", "tool_name": tool, "input": given, "tool_use_id": call}
        say(type="control_request", request_id=request, request=asked)
        while request not in self._answers:
            if self._inbox.over:
                sys.exit(0)
            self._take()
        response = self._answers.pop(request)
        return response.get("response") or {"message": response.get("error", "")}

    def _wait(self, seconds: float) -> None:
        """Give the person time to read; take what comes. Raises Interrupted."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            if self._inbox.over:
                sys.exit(0)  # Postroom ends it
            self._take(left)

    def _take(self, seconds: float | None = None) -> None:
        """Take the next line, if one comes in time. Raises Interrupted."""
        line = self._inbox.next(seconds)
        match line:
            case {"type": "user"}:
                self._prompts.append(line["message"]["content"])
            case {"type": "control_response"}:
                self._answers[line["response"]["request_id"]] = line["response"]
            case {"type": "control_request"}:
                done = {"subtype": "success", "request_id": line["request_id"], "response": {}}
                say(type="control_response", response=done)
                if line["request"]["subtype"] == "interrupt":
                    raise Interrupted


class ToolError(Exception):
    """A tool has failed; the text is its output."""


def main() -> None:
    """Read the arguments; those that Claude Code has and a script does not need are skipped."""
    words = sys.argv[1:]
    session = words[words.index("--resume") + 1] if "--resume" in words else ""
    kept = Path(os.environ["HOME"]) / f"session-{session}"
    if session and not kept.exists():
        sys.exit(f"No conversation found with session ID: {session}")
    agent = Agent(session, float(words[1]))
    (Path(os.environ["HOME"]) / f"session-{agent.session}").touch()
    agent.run()


if __name__ == "__main__":
    main()
