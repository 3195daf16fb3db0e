"""What the post room does about the folder that a worker works on, and what could not be brought back from it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from postroom.cli.options import connect
from postroom.cli.waiting import SLOW
from postroom.errors import PostroomError
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import Client

ASKING = "asks for its work"
"""What is said while nothing better is known."""


def tell_left(left: Iterable[str]) -> None:
    """Say what could not be brought back."""
    for name in left:
        click.echo(f"not brought back: {one_line(name, 300)}", err=True)


@contextmanager
def steps_told(who: Callable[[Client], str]) -> Generator[None]:
    """Say on standard error which step about a worker's folder goes on, if the block takes longer than `SLOW`.

    Args:
        who: finds the worker, by a connection of its own.
    """
    done = threading.Event()
    # `connect` asks the context which post room the command is for, and each thread has contexts of its own.
    command = click.get_current_context()
    teller = threading.Thread(target=_tell_steps, args=(command, who, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()


def _tell_steps(
    command: click.Context, who: Callable[[Client], str], done: threading.Event
) -> None:
    told = ""
    while not done.wait(SLOW):
        try:
            with command.scope(cleanup=False), connect() as client:
                workspace = client.worker(who(client)).get("workspace") or {}
        except PostroomError:
            continue  # the command itself says what is wrong
        now = one_line(str(workspace.get("doing") or ASKING), 100)
        if now != told and not done.is_set():
            click.echo(f"{now} ...", err=True)
            told = now
