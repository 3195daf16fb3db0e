"""Commands: what a typed line means, whatever it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput
from postroom.tui.typing.commands import BY_NAME, VERBS, Command, Plain, help_lines, parse


def command(line: str) -> Command:
    meant = parse(line)
    assert isinstance(meant, Command)
    return meant


def test_a_line_is_a_text_unless_it_begins_with_a_slash() -> None:
    assert parse("hello /stop") == Plain("hello /stop")
    assert parse("//stop is a command") == Plain("/stop is a command")
    assert parse(" /stop") == Plain(" /stop")


def test_a_text_keeps_its_lines_and_quotes() -> None:
    said = command("/msg @coder  it's\n  two lines")

    assert said.verb.name == "msg"
    assert said["who"] == "@coder"
    assert said["text"] == "it's\n  two lines"


def test_without_a_nick_a_command_is_about_the_chosen_agent() -> None:
    assert command("/msg hello @coder")["who"] == ""
    assert command("/msg hello @coder")["text"] == "hello @coder"
    assert command("/stop")["who"] == ""


def test_delegate_takes_a_skill_and_a_text_that_begins_with_a_dash() -> None:
    said = command("/delegate --skill review @coder - first this")

    assert (said["skill"], said["who"], said["text"]) == ("review", "@coder", "- first this")
    assert command("/delegate -x is wrong")["text"] == "-x is wrong"


def test_spawn_takes_its_options_anywhere_and_paths_in_quotes() -> None:
    said = command("/spawn 'my agents/a.toml' --workspace '~/my app' --set a=1 --set=b=2 --as copy")

    assert said["template"] == "my agents/a.toml"
    assert (said["workspace"], said["mode"]) == ("~/my app", "copy")
    assert said.many["set"] == ("a=1", "b=2")
    assert command("/spawn -n x claude-code")["name"] == "x"


@pytest.mark.parametrize(
    "line, why",
    [
        ("/answer", "what id?"),
        ("/answer ab12", "what text?"),
        ("/msg @coder", "what text?"),
        ("/spawn x --as me", "--as is one of worktree, copy, direct"),
        ("/spawn x --what y", "there is no option --what"),
        ("/spawn x --name", "--name needs a value"),
        ("/spawn 'x", "a quote is not closed"),
        ("/stop @a @b", "'@b' is too much"),
        ("/join #", "what project?"),
    ],
)
def test_an_incomplete_command_says_what_it_lacks(line: str, why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(line)

    assert why in refused.value.message


def test_an_unknown_command_names_the_nearest_ones() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse("/stpo @coder")
    assert refused.value.remedy == "did you mean /stop?"

    with pytest.raises(InvalidInput) as begun:
        parse("/de")
    assert begun.value.remedy == "did you mean /delegate or /deny?"

    with pytest.raises(InvalidInput) as strange:
        parse("/etc/passwd")
    assert "//" in strange.value.remedy


def test_each_command_is_in_the_help_with_its_usage() -> None:
    assert len(list(help_lines())) == len(VERBS)
    assert list(help_lines("/answer")) == [("/answer ID TEXT", BY_NAME["answer"].help)]


@given(st.text())
def test_any_line_is_a_text_a_command_or_a_refusal(line: str) -> None:
    meant: Command | Plain | None = None
    refused = ""
    try:
        meant = parse(line)
    except InvalidInput as error:
        refused = error.message

    if meant is None:
        assert line.startswith("/")
        assert refused.isprintable()
    else:
        assert isinstance(meant, Plain) != line.startswith("/") or line.startswith("//")


@given(st.sampled_from(VERBS), st.text())
def test_what_follows_a_command_can_be_anything(verb: object, rest: str) -> None:
    name = getattr(verb, "name", "")
    try:
        meant = command(f"/{name} {rest}")
    except InvalidInput:
        return
    assert meant.verb.name == name
    assert all(each for each in meant.values.values())
