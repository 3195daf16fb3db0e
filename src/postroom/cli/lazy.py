"""A click group that imports a command only when it is run, so that help and start stay fast."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Commands by name, each in the module of its name in `package`, as its attribute `command`.

    Args:
        package: where the modules are.
        summaries: for each command its line in the help; the order is that of the help.
    """

    def __init__(self, *, package: str, summaries: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._package = package
        self._summaries = summaries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """The names, in the order of the help."""
        return list(self._summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command of that name."""
        if cmd_name not in self._summaries:
            return None
        return import_module(f"{self._package}.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The same, and for a name that is none the one that it resembles."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            close = get_close_matches(args[0], list(self._summaries), n=1)
            if not close:
                raise
            raise click.UsageError(f"{error.message} Did you mean {close[0]!r}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._summaries.items()))
