"""Commands: what a typed line means, whatever it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput
from postroom.protocol.operations import OPERATIONS
from postroom.tui.typing.commands import BY_NAME, VERBS, Command, Plain, help_lines, parse

BY_ITSELF = """
    approvals.list events.past events.stream feeds.events feeds.happens feeds.stream inbox.list inbox.seen inbox.stream
    messages.chat messages.show people.me room.readyz room.status tasks.stream workers.list workers.show workspaces.sync
    agents.show
"""
"""What the screen shows or does without a command: its panes, its dialogs, their keys."""

FOR_PROGRAMS = """
    agents.card agents.keys announcements.list announcements.stream approvals.pending blobs.head blobs.post
    claims.offer events.report inbox.acknowledge metrics.read pushes.keys reports.artifact reports.status room.livez
    room.openapi sessions.ask sessions.asked sessions.end sessions.list sessions.note sessions.register sessions.show
    sessions.stream sessions.withdraw terminals.printed terminals.typed workers.card
"""

IN_A_SHELL = """
    agents.add agents.add_remote grants.admission grants.admit grants.allow grants.answer grants.ask grants.list
    grants.only grants.requests grants.revoke grants.set_only integrity.check invites.create invites.join
    invites.list invites.revoke webhooks.add webhooks.again webhooks.deliveries webhooks.list webhooks.remove
    webhooks.rotate webhooks.test agents.give feeds.read feeds.unread inbox.archive messages.threads agents.remove
    agents.rename agents.set_card agents.show_remote announcements.announce approvals.pin claims.claim
    approvals.set_pin audit.read backup.create blobs.get blobs.list blobs.remove credentials.remove deadletters.drop
    deadletters.list deadletters.requeue deadletters.show keys.create keys.list keys.revoke keys.rotate
    openings.close openings.list openings.open orgs.create orgs.list orgs.remove people.add people.list
    people.remove pushes.again pushes.list retention.due retention.prune room.shutdown tasks.retry
    terminals.terminal trust.list trust.rotate workers.leftovers workers.prune_leftovers workers.revoke
    workers.revoke_all
"""
"""What is done by `postroom` alone: rarely, or with what a line of the screen has no room for."""

OWN = {"nick", "clear", "path", "words", "command", "id", "allow", "remove", "store", "task"}
"""Words of commands that no operation has as a field of that name."""


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
    assert said["nick"] == "@coder"
    assert said["text"] == "it's\n  two lines"


def test_without_a_nick_a_command_is_about_the_chosen_agent() -> None:
    assert command("/msg hello @coder")["nick"] == ""
    assert command("/msg hello @coder")["text"] == "hello @coder"
    assert command("/stop")["nick"] == ""


def test_delegate_takes_a_skill_and_a_text_that_begins_with_a_dash() -> None:
    said = command("/delegate --skill review @coder - first this")

    assert (said["skill"], said["nick"], said["text"]) == ("review", "@coder", "- first this")
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


def test_each_operation_has_a_command_or_is_said_to_have_none():
    done = {name for verb in VERBS for name in verb.by.split()}
    without = (BY_ITSELF + FOR_PROGRAMS + IN_A_SHELL).split()

    assert sorted(done | set(without)) == sorted(OPERATIONS)
    assert len(without) == len(set(without) - done)


def test_the_words_of_a_command_are_fields_of_its_operations_or_its_own():
    def fields(operation: str) -> set[str]:
        row: Any = OPERATIONS[operation]
        return {name for place in ("path", "query", "body") for name, *_ in row.get(place, ())}

    own = set()
    for verb in VERBS:
        known = set().union(*map(fields, verb.by.split()))
        own |= {each.name for each in (*verb.slots, *verb.options)} - known
    assert own == OWN


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
