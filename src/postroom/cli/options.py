"""Options that many commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from pathlib import Path

    from postroom.client.http import Client

_STATE = "postroom.state"

Decorated = TypeVar("Decorated", bound="Callable[..., Any] | click.Command")


def _remember(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_STATE] = value  # shared by all contexts of one run; the innermost option wins


def state_option(*, envvar: str | None = None) -> Callable[[Decorated], Decorated]:
    """`--state DIR`, accepted before and after the command's name."""
    return click.option(
        "--state",
        metavar="DIR",
        type=click.Path(file_okay=False),
        envvar=envvar,
        show_envvar=envvar is not None,
        expose_value=False,
        is_eager=True,
        callback=_remember,
        help="State folder of the post room.",
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def state_folder() -> Path:
    """The chosen state folder, absolute."""
    from pathlib import Path

    chosen = click.get_current_context().meta.get(_STATE)
    if chosen is not None:
        return Path(chosen).absolute()
    from postroom.settings import default_state

    return default_state().absolute()


def connect() -> Client:
    """A client of the post room that runs on the chosen state folder; use it in a `with` statement.

    Raises:
        NotRunning: none runs there.
    """
    from postroom.client.locate import locate

    state = state_folder()
    locate(state)  # before the import of the HTTP library, which costs more than all else here
    from postroom.client.http import Client

    return Client.at(state)
