"""Options that many commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from pathlib import Path

    from postroom.client.http import Client

_STATE = "postroom.state"
_ORG = "postroom.org"

Decorated = TypeVar("Decorated", bound="Callable[..., Any] | click.Command")


def _remember(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_STATE] = value  # shared by all contexts of one run; the innermost option wins


def _remember_org(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        from postroom.protocol.ids import check_name

        ctx.meta[_ORG] = check_name(value, "organisation")


def _orgs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from postroom.cli.completion import orgs

    return orgs(ctx, parameter, incomplete)


def org_option(*, envvar: str | None = None) -> Callable[[Decorated], Decorated]:
    """`--org NAME`, accepted before and after the command's name."""
    return click.option(
        "--org",
        metavar="NAME",
        envvar=envvar,
        show_envvar=envvar is not None,
        expose_value=False,
        is_eager=True,
        callback=_remember_org,
        shell_complete=_orgs,
        help="Organisation that the command is for.",
    )


def state_option(
    *, envvar: str | None = None, org: bool = True
) -> Callable[[Decorated], Decorated]:
    """`--state DIR`, accepted before and after the command's name.

    Args:
        envvar: a variable that may name it, too.
        org: the command is for one organisation, so `--org NAME` is accepted as well.
    """
    state = _state_option(envvar)
    if not org:
        return state
    more = org_option()
    return lambda decorated: more(state(decorated))


def _state_option(envvar: str | None) -> Callable[[Decorated], Decorated]:
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


def chosen_org() -> str:
    """The chosen organisation, "" for the default one."""
    return click.get_current_context().meta.get(_ORG, "")


def connect() -> Client:
    """A client of the post room on the chosen state folder, for the chosen organisation; use it in a `with`
    statement.

    Raises:
        NotRunning: none runs there.
    """
    from postroom.client.locate import locate

    state = state_folder()
    locate(state)  # before the import of the HTTP library, which costs more than all the rest here
    from postroom.client.http import Client

    return Client.at(state, chosen_org())
