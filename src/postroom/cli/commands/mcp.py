"""The MCP server of a session: `postroom mcp`."""

from __future__ import annotations

import os
import sys

import click


@click.command("mcp")
@click.argument("client", default="mcp", metavar="[CLIENT]")
def command(client: str) -> None:
    """Be the MCP server of a session in your terminal, over stdin and stdout.

    Its client runs this. CLIENT is its name, such as cursor. The session has an address of its own: its tools send and
    read mail as that agent, and no key is in any file of the client. `postroom connect` writes the entry for clients
    that it knows, and prints it for others.
    """
    from postroom.connect import places, relay
    from postroom.errors import InvalidInput

    if not client.isidentifier():
        raise InvalidInput(f"{client!r} is no name of a client", remedy="letters and digits")
    places.write_hook()  # it is what begins the process that knows the session
    words = (sys.executable, "-I", "-S", relay.__file__)
    os.execv(words[0], [*words, str(places.folder()), client, str(os.getppid())])  # noqa: S606
