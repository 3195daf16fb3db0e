"""Agent `lead`: finds somebody who reviews Python source, delegates a folder to it, and tells the project of it.

Usage: lead.py FOLDER SKILL. It speaks JSON lines on stdin and stdout and knows nothing else of Postroom.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lines import Inbox, Line, say

CHOSEN = Path("chosen")
"""In the workspace, which survives restarts: whom the task was given to, so that nobody else gets it, too."""

SHOWN = 5
"""Findings that are posted while they come; all of them are in the task."""

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 5.0
LOOKS = 30
"""Seconds between looks for a reviewer, twice as many each time, and how many there are at most."""

OUTCOMES = {
    "completed": "has reviewed it",
    "failed": "has failed",
    "canceled": "has stopped: the task was canceled",
    "rejected": "does not do it",
}
"""State in which a task ends to what is posted of it."""

ASKS = "asks:"
NOBODY = "nobody will review it"


class Lead:
    """What the agent knows, and what it does about each line."""

    def __init__(self, folder: str, skill: str) -> None:
        self.folder = folder
        self.skill = skill
        self.pause: float | None = None
        """Seconds until it looks again if nothing happens; None if it does not."""
        self._looks = 0
        self._shown: list[str] = []

    def hear(self, line: Line) -> None:
        """Act on a line from Postroom."""
        match line["type"]:
            case "hello" if chosen := whom_before():
                self.delegate(chosen)
            case "hello":
                self.look()
            case "agents":
                self.choose(line["agents"])
            case "error" if line["ref"] == "find":
                self.choose([])
            case "error" if line["ref"] == "review":
                say(type="post", text=f"{NOBODY}: {line['detail']}", key="end")
            case "task_update":
                self.report(line)
            case "message":
                text = f"I only see to the review of {self.folder}."
                say(type="reply", to=line["id"], text=text)

    def look(self) -> None:
        """Ask who has the skill."""
        self.pause = None
        self._looks += 1
        say(type="find", skill=self.skill, ref="find")

    def choose(self, agents: list[Line]) -> None:
        """Give the task to one that is online, or look again later."""
        ready = [agent for agent in agents if agent["kind"] == "worker" and agent["online"]]
        if ready:
            chosen = min(ready, key=lambda agent: agent["nick"])
            text = (
                f"@{chosen['nick']} has the skill {self.skill}: asking it to review {self.folder}"
            )
            say(type="post", text=text, key="chosen")
            CHOSEN.write_text(chosen["uid"], encoding="utf-8")
            self.delegate(chosen["uid"])
        elif self._looks < LOOKS:
            text = f"nobody with the skill {self.skill} is online yet; I keep looking"
            say(type="post", text=text, key="looking")
            self.pause = min(FIRST_PAUSE * 2 ** (self._looks - 1), LONGEST_PAUSE)
        else:
            text = f"{NOBODY}: nobody with the skill {self.skill} has come online"
            say(type="post", text=text, key="end")

    def delegate(self, reviewer: str) -> None:
        """Give the task to a reviewer; the key makes it one task, however often this program is started anew."""
        text = f"Review the Python source in {self.folder}"
        more = {"key": "review", "stream": True, "ref": "review"}
        say(type="delegate", to=reviewer, skill=self.skill, text=text, **more)

    def report(self, update: Line) -> None:
        """Tell the project what the reviewer says of the task."""
        reviewer, state, text = f"@{update['from']['nick']}", update["state"], update["text"]
        if update["final"]:
            outcome = f"{reviewer} {OUTCOMES[state]}"
            say(type="post", text=f"{outcome}: {text}" if text else outcome, key="end")
        elif state in ("input-required", "auth-required"):
            answer = f"postroom task answer {update['task'][:8]} TEXT"
            text = f"{reviewer} {ASKS} {text} (to answer: {answer})"
            say(type="post", text=text, key=f"asks {update['seq']}")
        elif update["artifact"]:
            self.show(reviewer, update["artifact"]["text"])

    def show(self, reviewer: str, findings: str) -> None:
        """Post the first findings. A review that starts anew repeats them; the key keeps each from coming twice."""
        for finding in findings.splitlines():
            if len(self._shown) < SHOWN and finding not in self._shown:
                self._shown.append(finding)
                say(type="post", text=f"{reviewer} found {finding}", key=f"found {finding}"[:200])


def whom_before() -> str:
    """The uid of the reviewer that an earlier run of this program has chosen, "" if there is none."""
    try:
        return CHOSEN.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def main() -> None:
    """Act on what comes until Postroom says stop."""
    lead, inbox = Lead(*sys.argv[1:]), Inbox()
    while not inbox.over:
        line = inbox.next(lead.pause)
        if line is not None:
            lead.hear(line)
        elif not inbox.over:
            lead.look()


if __name__ == "__main__":
    main()
