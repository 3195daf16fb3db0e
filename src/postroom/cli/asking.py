"""Asks a person before something is done that cannot be undone."""

from __future__ import annotations

import sys

import click

from postroom.errors import Conflict


def confirm(question: str, refusal: str, with_yes: str, *, yes: bool) -> None:
    """Return if it may be done: `yes` says so, or a person at the terminal.

    Args:
        question: for the person.
        refusal: what is wrong where nobody can be asked.
        with_yes: the command that does it without a question.
        yes: it was said on the command line.

    Raises:
        Conflict: nobody can be asked.
        click.Abort: the person said no.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise Conflict(refusal, remedy=f"if it is meant: {with_yes}")
    click.confirm(question, abort=True, err=True)
