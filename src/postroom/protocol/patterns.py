"""Patterns of what a coding agent may do, or may not do, without asking a person. Pure.

A pattern is `Tool`, which stands for every use of the tool, or `Tool(argument)`, where `*` stands for any text. The
tool's name may have `*`, too (`mcp__github__*`). The argument is compared with one text of the tool's input: the
command of a shell tool, else its path or URL, else its input as JSON. Which of several the tool would go by nobody here
can know, so with more than one of them a pattern with an argument allows nothing, and a person is asked.

Paths are compared as they read without `.`, `..` and `//`. Where a folder on the way is a symbolic link, the path may
lead elsewhere: what a link leads to only the sandbox knows, at the moment of the use. A URL with such a segment is
asked.

Patterns with an argument allow a line of shell only if it is nothing but plain commands (`protocol.shell`), and each of
them is one that they name, for the folder in which it runs: after a `cd`, what `Bash(cd web && npm test)` names, not
`Bash(npm test)`. So a pattern may name several commands, as they stand in a line: each is allowed by itself. A pattern
that denies looks at the whole command and at each of its parts. It is no wall: a command can be written in more ways
than patterns can name.

Templates have patterns (`auto_approve`, `auto_deny`), and people add some for one worker (`added`): those are made with
one key while a person is busy with something else, so what would allow everything is left to templates.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from postroom.errors import InvalidInput
from postroom.protocol.approvals import ACT, IN_WORDS
from postroom.protocol.limits import MAX_PATTERN
from postroom.protocol.shell import OPERATORS, Line, Plain, line_of, rule_of
from postroom_a2a.text import one_line, printable

if TYPE_CHECKING:
    from postroom.protocol.shapes import Approval

SHELLS = frozenset({"bash", "shell", "sh", "execute", "run_shell_command", "exec", "terminal"})
"""Tools that take a shell command, in small letters."""

_COMMANDS = ("command", "cmd", "script")
_PATHS = ("file_path", "path", "notebook_path", "absolute_path", "filepath", "filePath")
_PLACES = (*_PATHS, "url")
_DECIDE = frozenset(
    {
        *("command", "commands", "cmd", "script", "code", "args", "arguments", "argv"),
        *("path", "paths", "filepath", "filepaths", "notebookpath", "absolutepath", "abspath"),
        *("file", "files", "filename", "filenames", "targetfile", "target", "destination", "dest"),
        *("url", "urls", "uri", "uris"),
    }
)
"""Names, without `_`, `-` and capitals, of what a tool may go by, whichever of them it knows."""
_BY_PATH = frozenset({"changes", "edits", "files"})
"""Names of members that may have a member for each path."""
_OTHERWISE = "pattern"
"""What decides where there is no command, path or URL: of a search, else it says only what is looked for there."""

_ODD_URL = re.compile(
    r"(?:^|/)(?:\.|%2e){1,2}(?=[/?#]|$)|[\\\s\x00-\x1f\x7f]|%(?:2f|5c)", re.IGNORECASE
)
"""What a client may turn into another address: dots between slashes, slashes of other kinds, blanks."""
_PARTS = re.compile(r"[;&|\n\r()`{}]+|\$\(")
_PATTERN = re.compile(r"(?P<tool>[^()\s]+)(?:\((?P<argument>.*)\))?", re.DOTALL)


def approves(pattern: str, tool: str, given: Mapping[str, Any]) -> bool:
    """Whether `pattern` allows the use of a tool with that input."""
    return bool(approving((pattern,), tool, given))


def approving(patterns: Sequence[str], tool: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of `patterns` that together allow the use of a tool with that input; () where they do not."""
    named = {each: split[1] for each in patterns if _like((split := _split(each))[0], tool)}
    if whole := next((each for each, argument in named.items() if argument is None), ""):
        return (whole,)
    narrow = {each: argument for each, argument in named.items() if argument is not None}
    if not narrow or len(_decisive(given)) > 1:
        return ()
    line = _line(tool, given)
    if line is None:
        found = (each for each, argument in narrow.items() if _names(argument, tool, given))
        return tuple(islice(found, 1))
    used: dict[str, None] = {}
    for plain in line.commands:
        found = (each for each, argument in narrow.items() if _has(argument, plain))
        if (rule := next(found, None)) is None:
            return ()
        used[rule] = None
    return tuple(used)


def _has(argument: str, plain: Plain) -> bool:
    """Whether the argument of a pattern names a plain command."""
    return any(
        each.folder == plain.folder and _like(each.text, plain.text)
        for each in rule_of(argument).commands
    )


def _names(argument: str, tool: str, given: Mapping[str, Any]) -> bool:
    """Whether the argument of a pattern names what a tool, which is no shell, is used on."""
    said = _argument(tool, given)
    if isinstance(given.get("url"), str) and _ODD_URL.search(said):
        return False
    if not any(name in given for name in _PATHS):
        return _like(argument, said)
    said = _plain_path(said)
    return _like(argument, said) or (".." not in argument and _like(_plain_path(argument), said))


def denies(pattern: str, tool: str, given: Mapping[str, Any]) -> bool:
    """Whether `pattern` denies the use of a tool with that input."""
    named, argument = _split(pattern)
    if not _like(named, tool):
        return False
    if argument is None:
        return True
    command = _command(tool, given) or ""
    texts = [_argument(tool, given), *(part.strip() for part in _PARTS.split(command))]
    texts += [text for value in _decisive(given) if (text := _text(value)) is not None]
    plain = [_plain_path(text) for name in _PATHS if isinstance(text := given.get(name), str)]
    return any(_like(argument, text) for text in (*texts, *plain))


def added(pattern: str) -> str:
    """A pattern that a person adds for one worker, as it is kept.

    Raises:
        InvalidInput: it is no pattern, could match nothing, looks like another one, or would allow every tool or
            every command of a shell.
    """
    text = pattern.strip(" ")
    if len(text) > MAX_PATTERN:
        raise InvalidInput(f"the pattern is over {MAX_PATTERN} characters", remedy="shorten it: *")
    if printable(text) != text or any(c.isspace() and c != " " for c in text):
        raise InvalidInput("the pattern has characters that are not shown, or another line")
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise InvalidInput(
            f"{text!r} is no pattern", remedy="such as Edit, Bash(npm test) or Bash(npm test *)"
        )
    _check_width(text, found["tool"], found["argument"])
    return text


def _check_width(pattern: str, tool: str, argument: str | None) -> None:
    template = "what is wider stands in the template: auto_approve, or autonomous = true"
    if not tool.strip("*"):
        raise InvalidInput(f"{pattern!r} would allow every tool", remedy=template)
    if not any(_like(tool.lower(), shell) for shell in SHELLS):
        return
    line = rule_of("" if argument is None else argument)
    if line.odd:
        said = f"{pattern!r} allows nothing: what has {one_line(line.odd)} is always asked"
        raise InvalidInput(said, remedy="name the plain commands")
    if any(not each.text or each.text.startswith("*") for each in line.commands):
        raise InvalidInput(
            f"{pattern!r} does not begin with the command that it allows",
            remedy=f"{tool}(npm test *) does; {template}",
        )


def suggest(approval: Approval) -> str:
    """The pattern with which a person would no longer be asked such a thing; "" where there is none (`why_not`).

    It allows what is asked, and of a shell nothing but these very commands. Of a tool that fetches it allows the same
    host, of any other each use.
    """
    tool, given = approval["tool"], approval["input"]
    if approval["kind"] in IN_WORDS or of_session(approval) or "*" in tool:
        return ""
    said = _argument(tool, given)
    # There is no way to write a star that stands for itself.
    made = [] if "*" in said else [f"{tool}({said})"]
    if _command(tool, given) is None:
        made = [*_of_host(tool, said), *made] if said == given.get("url") else [tool]
    return next((each for each in made if _fits(each, tool, given)), "")


def why_not(approval: Approval) -> str:
    """Why `suggest` has nothing for what an agent asks, "" where it has: `it has a redirection to out.txt`.

    The text of the agent in it is not made harmless.
    """
    tool, given = approval["tool"], approval["input"]
    if suggest(approval):
        return ""
    if approval["kind"] == "question":
        return "it is a question"
    if approval["kind"] == ACT:
        return "what an agent may not do alone is asked each time"
    if of_session(approval):
        return "a session's rules are those of its client"
    line = None if len(_decisive(given)) > 1 else _line(tool, given)
    if line is None:
        return "it names more than one thing"
    if line.odd:
        return f"it has {line.odd}"
    said = _argument(tool, given)
    if "*" in said:
        return "it has a *, which in a rule is any text"
    return f"it is over {MAX_PATTERN} characters" if len(said) > MAX_PATTERN else "no rule names it"


def of_session(approval: Approval) -> bool:
    """Whether a session in a person's terminal asks: its client has rules of its own."""
    return approval["worker"]["kind"] == "external"


def _line(tool: str, given: Mapping[str, Any]) -> Line | None:
    """The commands in the input, None for a tool that is no shell. Words of a list are one command's: never more."""
    command = _command(tool, given)
    if command is None:
        return None
    if OPERATORS.search(command) and any(isinstance(given.get(name), list) for name in _COMMANDS):
        return Line(odd="a list of words, not all of them plain")
    return line_of(command)


def _of_host(tool: str, url: str) -> list[str]:
    """The pattern for all of the host that a URL names; [] where that cannot be told."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return []
    if not host or parts.scheme not in ("http", "https") or "@" in parts.netloc or "*" in host:
        return []
    return [f"{tool}({parts.scheme}://{parts.netloc}/*)"]


def _fits(pattern: str, tool: str, given: Mapping[str, Any]) -> bool:
    try:
        return added(pattern) == pattern and approves(pattern, tool, given)
    except InvalidInput:
        return False


def _argument(tool: str, given: Mapping[str, Any]) -> str:
    """The text of the input that a pattern is compared with."""
    command = _command(tool, given)
    if command is not None:
        return command
    for name in (*_PLACES, _OTHERWISE):
        if isinstance(said := given.get(name), str):
            return said
    return json.dumps(dict(given), ensure_ascii=False, sort_keys=True, default=str)


def _command(tool: str, given: Mapping[str, Any]) -> str | None:
    """The shell command in the input, None for another tool. A list of words is no shell's, but reads like one."""
    for name in _COMMANDS:
        if (said := _text(given.get(name))) is not None:
            return said
    return "" if tool.lower() in SHELLS else None


def _text(said: object) -> str | None:
    """A text of the input, or a list of words in one line; None for anything else."""
    if isinstance(said, list):
        return " ".join(map(str, said)).strip()
    return said.strip() if isinstance(said, str) else None


def _decisive(given: Mapping[str, Any]) -> list[Any]:
    """The values by which a tool may go, however deep in its input."""
    found: list[Any] = []
    for name, value in given.items():
        plain = name.replace("_", "").replace("-", "").lower()
        if plain in _BY_PATH and isinstance(value, Mapping):
            found += value
        elif plain in _DECIDE and value not in (None, "", [], {}):
            found.append(value)
        else:
            within = value if isinstance(value, list) else [value]
            for each in within:
                found += _decisive(each) if isinstance(each, Mapping) else ()
    return found


def _plain_path(path: str) -> str:
    """A path without `.`, `..` and `//`, as far as its text tells."""
    return posixpath.normpath("/" + path.lstrip("/") if path.startswith("/") else path)


@lru_cache(maxsize=1024)
def _split(pattern: str) -> tuple[str, str | None]:
    found = _PATTERN.fullmatch(pattern.strip())
    # What is no pattern stands for itself, and so for no tool.
    return (found["tool"], found["argument"]) if found else (pattern, None)


def _like(pattern: str, text: str) -> bool:
    """Whether `text` is as `pattern` says, in a time that grows with both and no faster: agents choose the text."""
    first, *more = pattern.split("*")
    if not more:
        return pattern == text
    *between, last = more
    if not text.startswith(first):
        return False
    at = len(first)
    for piece in between:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return text.endswith(last) and at + len(last) <= len(text)
