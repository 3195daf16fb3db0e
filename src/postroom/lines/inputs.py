"""The input of a tool as a person reads it: a command, a file, a change as a diff, or its fields. Pure.

Each agent names the fields in its own way (`file_path`, `filePath`, `path`), so they are found by what a name means.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from postroom.errors import InvalidInput
from postroom.lines.rows import Row, Style, steady
from postroom.view.workspaces import AGAINST_BOTH

MOST_COMPARED = 2000
"""Lines of both sides of a change that are compared; beyond that all of both are shown, since that takes too long."""

CONTEXT = 2
"""Lines beside a change."""

MOST_BLANKS = 40
"""Blanks in a row that are shown; more are counted, so that nothing is pushed out of sight with them."""

MOST_ALIKE = 4
"""Lines alike in a row that are shown."""

_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that show nothing all the same (the default ignorable ones of Unicode, and blank Braille)."""

_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,10}$")
_PATH = ("filepath", "path", "file", "notebookpath", "abspath", "filename")
_OLD = ("oldstring", "oldtext", "oldstr", "old")
_NEW = ("newstring", "newtext", "newstr", "new", "newsource")
_CONTENT = ("content", "contents", "filetext")
_DIFF = ("diff", "patch", "unifieddiff", "patchtext")
_COMMAND = ("command", "cmd", "script", "code")
_SEVERAL = ("edits", "changes")
_SUBJECT = (*_COMMAND, *_PATH, "pattern", "query", "url", "uri", "prompt", "description", "name")


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of a file: its text before and after, or a diff that the agent made itself.

    Attributes:
        more: fields of this piece of the input that the change does not show.
        whole: there is a text; otherwise `more` is all that is there.
    """

    path: str
    before: str = ""
    after: str = ""
    diff: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = True


def subject(given: Mapping[str, Any]) -> str:
    """What a tool is used on, "" if the input does not say: a command, a file, an address, a word to find."""
    return _text_of(given, _find(given, _SUBJECT))


def command(given: Mapping[str, Any]) -> str:
    """The command that a tool is to run, "" for none."""
    return _text_of(given, _find(given, _COMMAND))


def texts_of(given: Mapping[str, Any]) -> list[str]:
    """The command, and each text that a field of the input has whole."""
    return [command(given), *(value for value in given.values() if isinstance(value, str))]


def changes(given: Mapping[str, Any]) -> list[FileChange]:
    """The changes of files that a tool is to make, in order."""
    return [change for change in _split(given, "")[0] if change.whole]


def _split(given: Mapping[str, Any], outer: str) -> tuple[list[FileChange], dict[str, Any]]:
    """The changes in an input, and the fields that they do not show.

    Args:
        outer: path of the file, unless the input names another.
    """
    rest = dict(given)
    named = _find(given, _PATH)
    path = _text_of(given, named) or outer
    found = list(_changed(rest, path))
    for key in [key for key in rest if _plain(key) in _SEVERAL]:
        pieces = list(_pieces(rest[key], path))
        if any(change.whole for change in pieces):
            del rest[key]
            found += pieces
    if named and any(change.whole and change.path == path for change in found):
        del rest[named]
    return found, rest


def _changed(rest: dict[str, Any], path: str) -> Iterator[FileChange]:
    """The change that the fields describe themselves; they are taken out of `rest`."""
    old, new = _find(rest, _OLD, empty=True), _find(rest, _NEW, empty=True)
    diff, content = _find(rest, _DIFF), _find(rest, _CONTENT, empty=True)
    if new and (path or old):
        before = rest.pop(old) if old else ""
        yield FileChange(path, before, rest.pop(new))
    elif diff:
        yield FileChange(path, diff=rest.pop(diff))
    elif content and path:
        yield FileChange(path, after=rest.pop(content))


def _pieces(value: Any, path: str) -> Iterator[FileChange]:
    """The changes of a list of edits, or of edits by the paths of their files."""
    named = value.items() if isinstance(value, Mapping) else ()
    listed = ((path, one) for one in value) if isinstance(value, list) else ()
    for name, one in (*named, *listed):
        if not isinstance(one, Mapping):
            yield FileChange(str(name), more={"": one}, whole=False)
            continue
        found, more = _split(one, str(name))
        if found:
            yield from found[:-1]
            yield replace(found[-1], more={**found[-1].more, **more})
        else:
            yield FileChange(str(name), more=more, whole=False)


def diff_rows(change: FileChange, *, indent: int) -> Iterator[Row]:
    """The lines of a change, those that go and those that come in colour."""
    if change.diff:
        lines = iter(_lines(change.diff))
    else:
        before, after = _both(change.before, change.after)
        if len(before) + len(after) > MOST_COMPARED:
            lines = iter([*(f"-{line}" for line in before), *(f"+{line}" for line in after)])
        else:
            lines = _compared(before, after)
    for line in _alike(lines):
        yield Row.of(_folded(line), _style_of(line), indent=indent)


def _both(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines of both sides. The end of the last one is a line of its own where only one side has it."""
    if {before[-1:], after[-1:]} <= {"\n", ""}:
        before, after = before.removesuffix("\n"), after.removesuffix("\n")
    return (before.split("\n") if before else []), (after.split("\n") if after else [])


def _lines(text: str) -> list[str]:
    """The lines of a text, of which nothing but its last end of line is left out."""
    return text.removesuffix("\n").split("\n")


def _compared(before: list[str], after: list[str]) -> Iterator[str]:
    """Both sides as a unified diff without its heads: the numbers in them count from the piece, not from the file."""
    hunks = difflib.unified_diff(before, after, n=CONTEXT, lineterm="")
    for number, line in enumerate(hunks):
        if number < 2:
            continue  # the names of the files
        if line.startswith("@@"):
            if number > 2:
                yield "⋮"
            continue
        yield line


def _style_of(line: str) -> Style:
    if line.startswith("+"):
        return Style.ADDED
    return Style.REMOVED if line.startswith("-") else Style.DIM


@dataclass(frozen=True, slots=True)
class Draft:
    """What of an input a person edits.

    Attributes:
        key: the field that it is: the command, or the new text of a file; "" for the whole input as JSON.
        text: as it stands now.
        suffix: of a file that has it, such as `.sh`.
    """

    key: str
    text: str
    suffix: str

    def into(self, given: Mapping[str, Any], text: str) -> dict[str, Any]:
        """The input with `text` in place of what stood there; raises InvalidInput where it is no JSON and has to be."""
        return {**given, self.key: text} if self.key else read_input(text)


def draft_of(given: Mapping[str, Any]) -> Draft:
    """What a person edits; where a text has characters that do not show it is JSON, in which they are escapes."""
    named, suffix = _find(given, _COMMAND), ".sh"
    if not named:
        path, old = _find(given, _PATH), _find(given, _OLD, empty=True)
        new, content = _find(given, _NEW, empty=True), _find(given, _CONTENT, empty=True)
        named = new if new and (path or old) else content if path else ""
        found = _SUFFIX.search(_text_of(given, path))
        suffix = found[0] if found else ".txt"
    text = given.get(named) if named else None
    if isinstance(text, str) and all(visible(line) == line for line in text.split("\n")):
        return Draft(named, text, suffix)
    return Draft("", json.dumps(given, indent=2, ensure_ascii=True), ".json")


def read_input(text: str) -> dict[str, Any]:
    """An input that a person has written as JSON; raises InvalidInput, which names the place of a mistake."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"the input is no JSON: {error}; nothing was decided") from error
    if not isinstance(value, dict):
        raise InvalidInput("the input is no JSON object; nothing was decided")
    return value


def input_rows(given: Mapping[str, Any], *, indent: int = 2) -> Iterator[Row]:
    """`exact_rows`, and that there are characters which do not show, if there are."""
    yield from exact_rows(given, indent=indent)
    if _hides(given):
        said = "it has characters that do not show: they are named here"
        yield Row.of(said, Style.BAD, indent=indent + 2, wraps=True)


def exact_rows(given: Mapping[str, Any], *, indent: int = 2) -> Iterator[Row]:
    """All that a tool is asked to do: who allows it must see each character, those that hide too (see `visible`).

    Nothing is left out, whatever the fields are named: what is no command and no change is shown as it is.
    """
    rest = dict(given)
    if text := command(rest):
        del rest[_find(rest, _COMMAND)]
        mark = "$ "
        for line in _shown(text):
            yield Row.of(mark + line, Style.STRONG, indent=indent, wraps=True)
            mark = "  "
    found, rest = _split(rest, "")
    shown = ""
    for change in found:
        if change.path and change.path != shown:
            yield Row.of(f"file: {visible(change.path)}", Style.STRONG, indent=indent, wraps=True)
        shown = change.path
        for row in diff_rows(change, indent=indent):
            yield Row(row.spans, row.indent, wraps=True)
        yield from _fields(change.more, indent)
    yield from _fields(rest, indent)
    if not given:
        yield Row.of("{}", Style.DIM, indent=indent)


def _fields(given: Mapping[str, Any], indent: int) -> Iterator[Row]:
    for name, value in given.items():
        text = value if value and isinstance(value, str) else _as_json(value)
        first, *rest = _shown(text)
        named = f"{_folded(name)}: " if name else ""
        yield Row.of(named + first, Style.DIM, indent=indent, wraps=True)
        for line in rest:
            yield Row.of(line, Style.DIM, indent=indent + 2, wraps=True)


def _shown(text: str) -> Iterator[str]:
    """The lines of a text, each `visible`, with a count in place of long runs of blanks and of lines alike."""
    return map(_folded, _alike(_lines(text)))


def _alike(lines: Iterable[str]) -> Iterator[str]:
    """`lines`; of many in a row that are alike, or show nothing, the first, and how many more there are."""
    for empty, run in groupby(lines, _is_empty):
        for line, same in ((None, run),) if empty else groupby(run):
            found = list(same)
            if len(found) <= MOST_ALIKE:
                yield from found
            elif line is None:
                yield f"[{len(found)} empty lines]"
            else:
                yield from (line, f"[{len(found) - 1} more lines like this]")


def _is_empty(line: str) -> bool:
    return all(map(_is_blank, line))


def _folded(line: str) -> str:
    """`line` as `visible` shows it, with a count in place of many blanks in a row."""
    if len(line) <= MOST_BLANKS:
        return visible(line)
    made = []
    for blank, run in groupby(line, _is_blank):
        text = "".join(run)
        made.append(_counted(text) if blank and len(text) > MOST_BLANKS else visible(text))
    return "".join(made)


def _counted(blanks: str) -> str:
    kinds = sorted(set(blanks))
    if kinds == [" "]:
        return f"[{len(blanks)} spaces]"
    named = ", ".join("space" if kind == " " else _named(ord(kind)) for kind in kinds[:3])
    return f"[{len(blanks)} characters that do not show: {named}]"


def _is_blank(char: str) -> bool:
    return char in " \t" or not _shows(char)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _hides(value: Any) -> bool:
    """Whether a text somewhere in `value` has a character that does not show."""
    if isinstance(value, str):
        return any(not _shows(char) for char in value if char != "\n")
    if isinstance(value, Mapping):
        return any(map(_hides, [*value, *value.values()]))
    return isinstance(value, list) and any(map(_hides, value))


def visible(text: str) -> str:
    """`text` with a name in place of each character that shows nothing or reorders what is shown.

    Elsewhere such characters are left out; a command that a person allows must not have any unseen.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = "".join(char if _shows(char) else _named(ord(char)) for char in text)
    return steady(shown, lambda char: _named(ord(char)))


def _shows(char: str) -> bool:
    if char in "\t ":
        return True
    return unicodedata.category(char)[0] not in "CZ" and not _BLANK.match(char)


def _named(number: int) -> str:
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{{{number:x}}}"


def _find(given: Mapping[str, Any], names: tuple[str, ...], *, empty: bool = False) -> str:
    """The name, as the agent has it, of the first field of `names` that is a text; of a command also a list of words.

    Args:
        empty: an empty text counts.
    """
    plain: dict[str, str] = {}
    for name in given:
        plain.setdefault(_plain(name), name)
    for each in names:
        name = plain.get(each, "")
        value = given.get(name)
        words = isinstance(value, list) and value and all(isinstance(one, str) for one in value)
        if (isinstance(value, str) and (value or empty)) or (words and each in _COMMAND):
            return name
    return ""


def _text_of(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "") if name else ""
    return shlex.join(value) if isinstance(value, list) else value


def _plain(name: Any) -> str:
    return str(name).replace("_", "").replace("-", "").lower()


_HEADS = ("diff --git ", "diff --cc ", "--- ", "+++ ", AGAINST_BOTH)
_STYLES = (("@@", Style.TOOL), ("+", Style.ADDED), ("-", Style.REMOVED))


def diff_style(line: str) -> Style:
    """What a line of a diff is."""
    if line.startswith(_HEADS):
        return Style.STRONG
    return next((style for start, style in _STYLES if line.startswith(start)), Style.PLAIN)
