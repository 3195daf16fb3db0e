"""The template's policy: what a coding agent may do, or may not do, without asking a person. Pure.

A pattern is `Tool`, which stands for every use of the tool, or `Tool(argument)`, where `*` stands for any text. The
tool's name may have `*`, too (`mcp__github__*`). The argument is compared with one text of the tool's input: the
command of a shell tool, else its path or URL, else its input as JSON.

`auto_deny` counts before `auto_approve`. What no pattern names is asked.

A pattern with an argument allows a shell command only if that is a single simple one. With a semicolon, `&`, `|`, `<`,
`>`, a parenthesis, `$`, a backtick, a backslash, a line end or a control character in it, also between quotes, it could
run more than the pattern names, so a person is asked. A pattern of `auto_deny` looks at the whole command and at each
of its parts. It is no wall: a command can be written in more ways than patterns can name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

SHELLS = frozenset({"bash", "shell", "sh", "execute", "run_shell_command", "exec", "terminal"})
"""Tools that take a shell command, in small letters."""

_COMMANDS = ("command", "cmd", "script")
_PLACES = ("file_path", "path", "notebook_path", "absolute_path", "filepath", "url", "pattern")
_OPERATORS = re.compile(r"[;&|<>()$`\\\x00-\x1f\x7f\x85\u2028\u2029]")
_PARTS = re.compile(r"[;&|\n\r()`{}]+|\$\(")
_PATTERN = re.compile(r"(?P<tool>[^()\s]+)(?:\((?P<argument>.*)\))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The policy's decision and the rule that made it."""

    allow: bool
    rule: str


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one template.

    Attributes:
        autonomous: what is not denied is allowed.
    """

    approve: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    autonomous: bool = False

    def judge(self, tool: str, given: Mapping[str, Any]) -> Verdict | None:
        """The decision on a use of a tool; None if a person is to be asked."""
        for rule in self.deny:
            if _denies(rule, tool, given):
                return Verdict(False, rule)
        for rule in self.approve:
            if _approves(rule, tool, given):
                return Verdict(True, rule)
        return Verdict(True, "autonomous") if self.autonomous else None


def _approves(rule: str, tool: str, given: Mapping[str, Any]) -> bool:
    named, argument = _split(rule)
    if not _like(named, tool):
        return False
    if argument is None:
        return True
    command = _command(tool, given)
    if command is not None and _OPERATORS.search(command):
        return False
    return _like(argument, _argument(tool, given))


def _denies(rule: str, tool: str, given: Mapping[str, Any]) -> bool:
    named, argument = _split(rule)
    if not _like(named, tool):
        return False
    if argument is None:
        return True
    said = _argument(tool, given)
    parts = [part.strip() for part in _PARTS.split(said)] if _command(tool, given) else []
    return any(_like(argument, text) for text in (said, *parts))


def _argument(tool: str, given: Mapping[str, Any]) -> str:
    """The text of the input that a pattern is compared with."""
    command = _command(tool, given)
    if command is not None:
        return command
    for name in _PLACES:
        if isinstance(said := given.get(name), str):
            return said
    return json.dumps(dict(given), ensure_ascii=False, sort_keys=True, default=str)


def _command(tool: str, given: Mapping[str, Any]) -> str | None:
    """The shell command in the input, None for another tool. A list of words is no shell's, but reads like one."""
    for name in _COMMANDS:
        said = given.get(name)
        if isinstance(said, str):
            return said.strip()
        if isinstance(said, list):
            return " ".join(map(str, said)).strip()
    return "" if tool.lower() in SHELLS else None


@cache
def _split(rule: str) -> tuple[str, str | None]:
    found = _PATTERN.fullmatch(rule.strip())
    # What is no pattern stands for itself, and so for no tool.
    return (found["tool"], found["argument"]) if found else (rule, None)


def _like(pattern: str, text: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
