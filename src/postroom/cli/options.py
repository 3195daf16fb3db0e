"""Options that many commands have."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from postroom.errors import InvalidInput, PostroomError

if TYPE_CHECKING:
    from pathlib import Path

    from postroom.client.http import AsyncClient, Client
    from postroom.client.logins import Login
    from postroom.client.rules import Locate

_STATE = "postroom.state"
_URL = "postroom.url"
_ORG = "postroom.org"
_NO_TUI = "postroom.no_tui"
_NO_MOUSE = "postroom.no_mouse"

Decorated = TypeVar("Decorated", bound="Callable[..., Any] | click.Command")


def _remember(key: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    """A callback that keeps an option's value, and whether it came from the command line."""

    def keep(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None and parameter.name is not None:
            source = ctx.get_parameter_source(parameter.name)
            typed = source is click.core.ParameterSource.COMMANDLINE
            # Shared by all contexts of one run; the innermost option wins.
            ctx.meta[key] = (value, typed)

    return keep


def _remember_org(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        from postroom.protocol.ids import check_name

        ctx.meta[_ORG] = check_name(value, "organisation")


def orgs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The organisations, for shell completion."""
    try:
        with ctx.scope(cleanup=False), connect() as client:  # the state folder is of the context
            names = [org["name"] for org in client.orgs()]
    except PostroomError:
        return []
    return [name for name in names if name.startswith(incomplete)]


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
        shell_complete=orgs,
        help="Organisation that the command is for.",
    )


def state_option(
    *, envvar: str | None = None, urlvar: str | None = None, org: bool = True, here: bool = False
) -> Callable[[Decorated], Decorated]:
    """`--state DIR` and `--url URL`, accepted before and after the command's name: which post room is meant.

    Args:
        envvar: a variable that may name the state folder, too.
        urlvar: the same for the URL.
        org: the command is for one organisation, so `--org NAME` is accepted as well.
        here: the command is for a post room of this machine, so its help does not offer `--url`.
    """
    options = [
        click.option(
            "--state",
            metavar="DIR",
            type=click.Path(file_okay=False),
            envvar=envvar,
            show_envvar=envvar is not None,
            expose_value=False,
            is_eager=True,
            callback=_remember(_STATE),
            help="State folder of the post room.",
        ),
        click.option(
            "--url",
            "post_room",  # commands have arguments of their own that are called `url`
            metavar="URL",
            envvar=urlvar,
            show_envvar=urlvar is not None,
            expose_value=False,
            is_eager=True,
            hidden=here,
            callback=_remember(_URL),
            help="Post room of another machine: a URL or a name of `postroom login`; `local` for none.",
        ),
    ]
    if org:
        options.append(org_option())

    def decorate(decorated: Decorated) -> Decorated:
        for option in options:
            decorated = option(decorated)
        return decorated

    return decorate


def _refuse(key: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    """A callback that keeps a flag once it is set, before or after the command's name."""

    def keep(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[key] = True

    return keep


def screen_options(decorated: Decorated) -> Decorated:
    """`--no-tui` and `--no-mouse`, accepted before and after the command's name."""
    for name, key, text in (
        ("--no-mouse", _NO_MOUSE, "Leave the mouse to the terminal."),
        (
            "--no-tui",
            _NO_TUI,
            "Lines in place of the screen, for screen readers too.  [env var: POSTROOM_NO_TUI]",
        ),
    ):
        decorated = click.option(
            name, is_flag=True, expose_value=False, is_eager=True, callback=_refuse(key), help=text
        )(decorated)
    return decorated


def screen_refused() -> bool:
    """Whether `--no-tui` was given, or the environment says so."""
    variable = os.environ.get("POSTROOM_NO_TUI", "")
    return click.get_current_context().meta.get(_NO_TUI, False) or variable not in {"", "0"}


def without_mouse() -> bool:
    """Whether `--no-mouse` was given."""
    return click.get_current_context().meta.get(_NO_MOUSE, False)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def chosen_login() -> Login | None:
    """The post room of another machine that the command is for; None for one of this machine.

    What is typed counts before the environment, that before the default of `postroom login`.

    Raises:
        InvalidInput: two post rooms are named.
        NotFound, Unauthorized: there is no such login.
    """
    return _chosen()[0]


def _chosen() -> tuple[Login | None, str]:
    """The login, and how to have the command run on this machine's post room instead."""
    meta = click.get_current_context().meta
    state, state_typed = meta.get(_STATE, ("", False))
    url, url_typed = meta.get(_URL, ("", False))
    from postroom.client.logins import LOCAL, default_login, read

    if url == LOCAL and (url_typed or not state_typed):
        return None, ""
    if state_typed and url_typed:
        raise InvalidInput("--url and --state name two post rooms", remedy="leave one of them out")
    if url and (url_typed or not state_typed):
        instead = "without --url" if url_typed else "unset POSTROOM_URL, or add: --url local"
        return read().find(url), instead
    if state:
        return None, ""
    return default_login(), "postroom login --use local, or add: --url local"


def state_folder() -> Path:
    """The chosen state folder, absolute.

    Raises:
        InvalidInput: commands go to a post room of another machine.
    """
    login, instead = _chosen()
    if login is not None:
        command = click.get_current_context().command_path
        raise InvalidInput(
            f"`{command}` works on a post room of this machine, and commands go to {login.url}",
            remedy=f"run it on that machine; for the one here: {instead}",
        )
    from pathlib import Path

    state, _ = click.get_current_context().meta.get(_STATE, ("", False))
    if state:
        return Path(state).absolute()
    from postroom.settings import default_state

    return default_state().absolute()


def choose_org(name: str) -> None:
    """Have the command be for that organisation."""
    _remember_org(click.get_current_context(), click.Option(["--org"]), name)


def chosen_org() -> str:
    """The chosen organisation, "" for the default one."""
    return click.get_current_context().meta.get(_ORG, "")


def connect() -> Client:
    """A client of the chosen post room, for the chosen organisation; use it in a `with` statement.

    Raises:
        NotRunning: none runs there.
    """
    find, org = _place()
    from postroom.client.http import Client

    client = Client.on(find, org)
    _name(client.inner)
    return client


def connect_async() -> AsyncClient:
    """The same for the tasks of an event loop, which close it."""
    find, org = _place()
    from postroom.client.http import AsyncClient

    client = AsyncClient.on(find, org)
    _name(client)
    return client


def _place() -> tuple[Locate, str]:
    """What finds the chosen post room, and the chosen organisation; raises NotRunning."""
    login = chosen_login()
    if login is not None:
        from postroom.client.logins import read

        name = login.name
        # Read again when the key is refused: a new login may have replaced it.
        return lambda: read().find(name).address(), chosen_org() or login.org
    from postroom.client.locate import locate

    state = state_folder()
    locate(state)  # before the import of the HTTP library, which costs more than all the rest here
    return lambda: locate(state), chosen_org()


def _name(client: AsyncClient) -> None:
    from postroom.client.locate import CLI_AGENT

    client.transport.program = CLI_AGENT


pin_file_option = click.option(
    "--pin-file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The first line of FILE is your PIN; without it you are asked.",
)

verbose_option = click.option(
    "--verbose", "-v", is_flag=True, help="Say all that is known of a sandbox that cannot be had."
)
