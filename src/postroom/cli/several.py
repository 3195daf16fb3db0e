"""Commands that take several workers: each is done for itself, and a fault of one does not keep the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from postroom.cli.completion import agents
from postroom.cli.nearest import name_nearest
from postroom.cli.output import print_json
from postroom.errors import PostroomError, exit_code

nicks_argument = click.argument(
    "nicks", metavar="NICK...", nargs=-1, required=True, shell_complete=agents
)

Answer = TypeVar("Answer")


def _nothing(_: Any) -> None:
    """Tell no more."""


def each(
    nicks: Sequence[str],
    act: Callable[[str], Answer],
    line: Callable[[Answer], str],
    *,
    as_json: bool,
    listed: bool = False,
    then: Callable[[Answer], None] = _nothing,
) -> int:
    """Do `act` for each worker and print a line of each answer; returns the exit status, that of the worst error.

    Args:
        listed: JSON is an object with the list `workers` also for one worker, whose own answer it is else.
        then: tells more behind the line, or raises.

    Raises:
        PostroomError: only one worker is named, and that is its error.
    """
    wanted = list({nick.removeprefix("@"): nick for nick in nicks}.values())
    if len(wanted) == 1 and not listed:
        answer = act(wanted[0])
        if as_json:
            print_json(answer)
        else:
            click.echo(line(answer))
        then(answer)
        return 0
    from postroom.cli.root import report

    answers: list[Answer] = []
    status = 0
    for nick in wanted:
        try:
            answer = act(nick)
            answers.append(answer)
            if not as_json:
                click.echo(line(answer))
            then(answer)
        except PostroomError as error:
            name_nearest(error)
            report(error)
            status = max(status, exit_code(error))
    if as_json:
        print_json({"workers": answers})
    return status
