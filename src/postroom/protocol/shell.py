"""What a line of shell runs, as far as that can be told: its plain commands, each with its folder. Pure.

Rules name plain commands (`protocol.patterns`). A line counts as plain commands if it is nothing but such commands, in
lists and pipes; a redirection only to /dev/null or to another descriptor, and of `cd` only a chain of `&&`, so that
nothing runs where the folder was not reached. All else could run more than it names, and has a word of its own here
(`Line.odd`) that people are shown.

The line is read by the grammar of tree-sitter, which is loaded only for what has an operator in it. It reads shell a
little otherwise than a shell does, so a word counts only if it is written in characters that every shell reads alike,
and only if `shlex` finds the same words.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from postroom_a2a.text import printable

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_LINE = 4096
"""Characters of a line that is read."""

MAX_COMMANDS = 50
"""Commands of one line."""

OPERATORS = re.compile(r"[;&|<>()$`\\\x00-\x1f\x7f\x85\u2028\u2029]")
"""What makes a line more than one simple command, wherever it stands."""

_NAME = re.compile(r"(?:~/)?[A-Za-z0-9_./+@%:,-]+")
_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./*?\[\]~^-][A-Za-z0-9_@%+=:,./*?\[\]~^#-]*")
_NUMBER = re.compile(r"[0-9]+")
_IN_QUOTES = re.compile(r'"(?:[^"$`\\!]|\\[A-Za-z0-9.])*"')
_CLOSED = re.compile(r"""(?:[^'"]++|'[^']*'|"[^"]*")*+""")
_LITERAL = re.compile(r"'[^']*'")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=", re.ASCII)
_FOLDER = re.compile(r"[^-~*?\[\s][^*?\[]*")
_EXPANDS = re.compile(r"[-*?\[].*[*?\[]|[*?\[]|.*[{}]")

_OTHERS = {
    **dict.fromkeys(("eval", "source", ".", "exec", "xargs"), "which runs what it is given"),
    **dict.fromkeys(
        ("command", "builtin", "env", "time", "coproc", "noglob", "nocorrect", "-", "repeat"),
        "in front of another command",
    ),
    **dict.fromkeys(
        (
            *("alias", "unalias", "hash", "enable", "trap", "set", "shopt", "setopt", "unsetopt"),
            *("export", "declare", "typeset", "local", "readonly", "unset", "function", "emulate"),
            *("autoload", "zmodload", "bind", "fc", "sched"),
        ),
        "which changes what other commands do",
    ),
    **dict.fromkeys(("pushd", "popd"), "which changes the folder"),
    **dict.fromkeys(
        (
            *("if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done"),
            *("case", "esac", "select", "in"),
        ),
        "which is a word of the shell",
    ),
}
"""Commands that are none for a rule, and why."""

_ANY = "__ANY_TEXT__"
"""A word in place of each `*` of a rule, which may stand where no shell takes one."""

_RUNS_MORE = ("-exec", "-execdir", "-ok", "-okdir")
"""Words with which `find` runs another command."""

_JOINS = frozenset({"program", "list", "pipeline", "redirected_statement"})
_BETWEEN = frozenset({"&&", "||", "|", ";", "\n"})
_FORMS = {
    "&": "a command in the background",
    "|&": "a pipe of errors, too",
    "subshell": "a subshell",
    "compound_statement": "a group",
    "negated_command": "a ! in front",
    "function_definition": "a function",
    "variable_assignment": "an assignment",
    "variable_assignments": "an assignment",
    "declaration_command": "a change of variables",
    "unset_command": "a change of variables",
    "test_command": "a test",
    "comment": "a comment",
    "heredoc_redirect": "a here-document",
    "herestring_redirect": "a here-document",
    "command_substitution": "a substitution",
    "process_substitution": "a substitution",
    "arithmetic_expansion": "a substitution",
    "simple_expansion": "a variable",
    "expansion": "a variable",
    "ansi_c_string": "a text with escapes",
    "translated_string": "a text with escapes",
    "brace_expression": "braces",
    **dict.fromkeys(
        ("if_statement", "while_statement", "for_statement", "c_style_for_statement"),
        "a loop or a condition",
    ),
    "case_statement": "a loop or a condition",
}
_SAID = 60
"""Characters of a part that are named."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A plain command.

    Attributes:
        folder: where it runs, as the `cd` before it say; "" for where the line begins.
        text: its words as they are written.
    """

    folder: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of shell: its plain commands, or what else it has: `a redirection to out.txt`."""

    commands: tuple[Plain, ...] = ()
    odd: str = ""


class _OddError(Exception):
    """The line has something else; its text says what."""


@lru_cache(maxsize=256)
def line_of(text: str) -> Line:
    """What a line of shell runs."""
    try:
        return Line(_commands(text.strip()))
    except _OddError as error:
        return Line(odd=str(error))


@lru_cache(maxsize=1024)
def rule_of(text: str) -> Line:
    """The plain commands that a rule names, written as a line of shell in which `*` is any text."""
    if _ANY in text:
        return Line(odd=_ANY)
    found = line_of(text.replace("*", _ANY))
    if found.odd:
        return Line(odd=found.odd.replace(_ANY, "*"))
    if any(_ANY in each.folder for each in found.commands):
        return Line(odd="a * in its folder")
    return Line(tuple(Plain(each.folder, each.text.replace(_ANY, "*")) for each in found.commands))


def _commands(text: str) -> tuple[Plain, ...]:
    if not OPERATORS.search(text):
        first, _, _ = text.partition(" ")
        if text:
            _check_name(first)
        if not _CLOSED.fullmatch(text):
            raise _OddError("a quote that is left open")
        if posixpath.basename(first) != "find" and " #" not in text:
            return (Plain("", text),)
    if len(text) > MAX_LINE:
        raise _OddError(f"over {MAX_LINE} characters")
    flat = text.replace("\n", "")
    if printable(flat) != flat or any(char.isspace() and char != " " for char in flat):
        raise _OddError("characters that do not show")
    try:
        source = text.encode()
    except UnicodeEncodeError:
        raise _OddError("characters that are none") from None
    root = _parser().parse(source).root_node
    found = _in_folders(list(_parts(root, source)))
    if root.has_error:
        raise _OddError("a part that cannot be read")
    return found


@cache
def _parser() -> Parser:
    """Loaded here alone: most sidecars never read such a line."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _parts(root: Node, source: bytes) -> Iterator[Sequence[str] | str]:
    """The commands as their words, and what stands between them."""
    at, stack, ended = 0, [root], False
    while stack:
        node = stack.pop()
        if node.type in _JOINS:
            stack.extend(reversed(node.children))
            continue
        between = source[at : node.start_byte]
        _check_gap(between)
        at = node.end_byte
        # The grammar has no node for the end of a line.
        if ended and node.type == "command" and b"\n" in between:
            yield "\n"
        ended = ended and node.type == "file_redirect"
        if node.is_missing or node.type == "ERROR":
            raise _OddError("a part that cannot be read")
        if node.type == "file_redirect":
            _check_redirect(node, source)
        elif node.type in _BETWEEN:
            yield node.type
        elif node.type == "command":
            ended = True
            yield list(_words(node, source))
        else:
            raise _form(node, source)
    _check_gap(source[at:])


def _check_gap(between: bytes, blank: bytes = b" \n") -> None:
    if between.strip(blank):
        raise _OddError("a part that cannot be read")


def _words(command: Node, source: bytes) -> Iterator[str]:
    at, first = command.start_byte, True
    for node in command.children:
        _check_gap(source[at : node.start_byte], b" ")
        at = node.end_byte
        if node.type == "file_redirect":
            _check_redirect(node, source)
            continue
        if node.type == "command_name":
            (node,) = node.children  # noqa: PLW2901 (its one word)
        raw = source[node.start_byte : node.end_byte].decode()
        value = _value(node, source)
        if shlex.split(raw) != [value]:
            raise _OddError("a part that cannot be read")
        if first:
            _check_name(raw)
            program, first = posixpath.basename(raw), False
        elif program == "find" and (value in _RUNS_MORE or _EXPANDS.match(raw)):
            raise _OddError(f"find {_said(raw)}")
        yield raw


def _value(node: Node, source: bytes) -> str:
    """What a word stands for, where that is nothing but its text."""
    raw = source[node.start_byte : node.end_byte].decode()
    match node.type:
        case "word" if _WORD.fullmatch(raw):
            return raw
        case "number" if _WORD.fullmatch(raw):
            return raw
        case "string" if _IN_QUOTES.fullmatch(raw):
            return raw[1:-1]
        case "raw_string" if _LITERAL.fullmatch(raw):
            return raw[1:-1]
        case "concatenation":
            return "".join(_value(child, source) for child in node.children)
        case "word" | "number" | "string" | "raw_string":
            inner = (child for child in node.children if child.type in _FORMS)
            if (found := next(inner, None)) is not None:
                raise _form(found, source)
            raise _OddError(f"a word that is not plain: {_said(raw)}")
    raise _form(node, source)


def _check_name(word: str) -> None:
    """Raise _OddError where the first word of a command is none that a rule can name."""
    if _ASSIGNMENT.match(word):
        raise _OddError(f"an assignment in front: {_said(word)}")
    if word == "!":
        raise _OddError("a ! in front")
    if not _NAME.fullmatch(word):
        raise _OddError(f"a first word that is not plain: {_said(word)}")
    name = posixpath.basename(word)
    if why := _OTHERS.get(name):
        raise _OddError(f"{name}, {why}")


def _check_redirect(node: Node, source: bytes) -> None:
    """Raise _OddError for a redirection that could write or read anything."""
    said = [source[child.start_byte : child.end_byte].decode() for child in node.children]
    at = source[node.start_byte : node.end_byte].decode()
    if node.children and node.children[0].type == "file_descriptor":
        said = said[1:]
    match said:
        case [">" | ">>" | "<" | "&>" | "&>>" | ">&", "/dev/null"]:
            return
        case [">&", to] if _NUMBER.fullmatch(to):
            return
        case [_, to]:
            raise _OddError(f"a redirection to {_said(to)}")
    raise _OddError(f"a redirection: {_said(at)}")


def _form(node: Node, source: bytes) -> _OddError:
    raw = _said(source[node.start_byte : node.end_byte].decode())
    return _OddError(f"{_FORMS.get(node.type, 'a part that cannot be read')}: {raw}")


def _in_folders(parts: Sequence[Sequence[str] | str]) -> tuple[Plain, ...]:
    """The commands, each with its folder."""
    found: list[Plain] = []
    folder, between, last = "", "", len(parts)
    while last and parts[last - 1] in (";", "\n"):
        last -= 1
    moves = any(part[0] == "cd" for part in parts if not isinstance(part, str) and part)
    for number, part in enumerate(parts[:last]):
        if isinstance(part, str):
            if between not in ("", ";", "\n") or (between and part not in (";", "\n")):
                raise _OddError("a part that cannot be read")
            if moves and part not in ("&&", "|"):
                raise _OddError("a cd with more than && after it: it may fail")
            between = part
            continue
        if (found and not between) or not part or len(found) >= MAX_COMMANDS:
            raise _OddError(f"over {MAX_COMMANDS} commands" if part else "a redirection alone")
        after = parts[number + 1] if number + 1 < last else ""
        if part[0] != "cd":
            found.append(Plain(folder, " ".join(part)))
        elif last == 1:
            return (Plain("", " ".join(part)),)
        elif "|" in (between, after):
            raise _OddError("a cd in a pipe")
        elif not after:
            raise _OddError("a cd at its end, for what comes after it")
        else:
            folder = _moved(folder, part)
        between = ""
    if between or not found:
        raise _OddError("a part that cannot be read")
    return tuple(found)


def _moved(folder: str, words: Sequence[str]) -> str:
    """The folder after a `cd`."""
    values = [shlex.split(word)[0] for word in words[1:]]
    if len(values) != 1 or not _FOLDER.fullmatch(values[0]):
        raise _OddError(f"a cd of which the folder is not named: {_said(' '.join(words))}")
    there = posixpath.normpath(posixpath.join(folder, values[0]))
    return "" if there == "." else there


def _said(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SAID else flat[:_SAID] + "…"
