"""Post rooms of other machines: `postroom login` and `logout`.

A login trusts an authority that this system knows, or the one that its person has confirmed.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.declaring import Answer, answers, parameter
from postroom.cli.output import print_table
from postroom.errors import InvalidInput, NotFound, StateUnwritable
from postroom.lines.text import Cell
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.logins import Login, Logins
    from postroom.protocol.origins import Origin


def pinned(origin: Origin, wanted: str) -> str:
    """PEM of the only authority to trust for `origin`; "" for those that this system trusts.

    Args:
        wanted: the authority's fingerprint, "" to ask for a word on it where the system does not know it.

    Raises:
        InvalidInput: nobody confirms the authority.
        ProtocolViolation, NotRunning: as `authority_with`.
    """
    from postroom.client.pinning import as_pem, authority_with, fingerprint_of, unknown_authority

    if origin.scheme == "http":
        click.echo(
            f"{origin.url} is plain HTTP: your key goes to whatever program of this machine listens there, and\n"
            "nothing proves that it is the post room. That of your own account needs no login; that of another\n"
            "one proves itself with TLS: postroom config set tls.mode always, there.",
            err=True,
        )
        return ""
    if wanted:
        return as_pem(authority_with(origin, wanted))
    authority = unknown_authority(origin)
    if authority is None:
        return ""
    _confirm(origin, fingerprint_of(authority))
    return as_pem(authority)


def _confirm(origin: Origin, fingerprint: str) -> None:
    click.echo(f"This system does not know who vouches for {origin.url}.", err=True)
    click.echo(f"  authority SHA-256  {fingerprint}", err=True)
    if not sys.stdin.isatty():
        raise InvalidInput(
            "this system does not know that authority, and without a terminal you cannot confirm it",
            remedy="compare it with `postroom tls status` there, then: --fingerprint SHA256",
        )
    click.echo("`postroom tls status` shows it there. Compare before you say yes.", err=True)
    if not click.confirm("Is it the same?", err=True):
        raise InvalidInput("the authority is not trusted", remedy="ask who runs the post room")


EXAMPLES = """\b
Examples:
  postroom login https://box.example:4281
  postroom login https://box.example:4281 --key-file KEY --fingerprint SHA256
  postroom login http://127.0.0.1:4280 --name counter --key-file counter.key
  postroom login --use local
"""

LONGEST_KEY = 512

HERE = "the post room of this machine"


@click.command("login", epilog=EXAMPLES)
@answers(
    "url [URL]",
    "--name NAME: What to call it; its host if not given, or the nick of a program.",
    parameter(
        "--key-file FILE: The first line of FILE is the key; without it you are asked, or standard input has it.",
        type=click.Path(dir_okay=False, path_type=Path),
    ),
    "--fingerprint SHA256: Of the authority to trust; without it you are shown it and asked.",
    "--org NAME: Organisation that the key is of.",
    "--list listing: List what there is a key for.",
    "--use NAME: Have commands go there; `local` for here.",
    post_room=False,
)
def command(
    url: str,
    name: str,
    key_file: Path | None,
    fingerprint: str,
    org: str,
    listing: bool,
    use: str,
) -> Answer:
    """Keep your API key for the post room at URL, and have all commands go there from now on.

    The key of a program (an external agent, a service) is kept for it, and commands go where they went: only `--use`
    has them go there as that program.

    The key comes from a prompt, --key-file or standard input, never from the command line. It is kept in a file that
    only you can read, or in the keyring of the system. If this system does not know who vouches for the post room, you
    are shown the fingerprint of its authority, and from then on that authority alone is trusted for it.
    """
    from postroom.client.logins import read

    logins = read()
    if listing or not url:
        if use:
            logins = logins.using(use)
            save(logins)
        elif not listing:
            raise click.UsageError("Missing argument 'URL'.")
        return _show(logins)
    login, logins = _new(logins, url, name, org, key_file, fingerprint)
    logins = logins.using(use) if use else logins
    save(logins)
    return _record(login, logins), lambda: _say(login, logins)


def _say(login: Login, logins: Logins) -> None:
    """Say whose key is kept where, and which login commands use now."""
    kept = "the keyring of this system" if not login.key else "a file that only you can read"
    who = f"@{one_line(login.nick)}"
    mine = login.name == logins.default
    click.echo(f"{'you are' if mine else 'a key of'} {who} at {login.url}; the key is in {kept}")
    if mine:
        click.echo(
            f"commands go there from now on ({login.name}); back: postroom login --use local"
        )
        return
    now = logins.entries.get(logins.default)
    place = f"{now.url} as @{one_line(now.nick)} ({now.name})" if now else HERE
    click.echo(f"commands go to {place}, as before; a program says Agent({login.name!r})")


def save(logins: Logins) -> None:
    """Write the file of logins."""
    from postroom.client.logins import path
    from postroom.identity import privatefile

    file = path()
    try:
        privatefile.prepare(file.parent)
        privatefile.replace(file, logins.dump())
    except OSError as error:
        raise StateUnwritable(f"cannot write {file}: {error.strerror}") from error


def _new(
    logins: Logins, url: str, name: str, org: str, key_file: Path | None, fingerprint: str
) -> tuple[Login, Logins]:
    """A login whose key the post room has taken, with what is to be kept."""
    from postroom.client.logins import Login, check_login_name
    from postroom.client.pinning import given_fingerprint
    from postroom.protocol.ids import check_name
    from postroom.protocol.origins import origin_of

    origin = origin_of(url)
    org = check_name(org, "organisation") if org else ""
    wanted = given_fingerprint(fingerprint) if fingerprint else ""
    name = check_login_name(name) if name else ""
    authority = pinned(origin, wanted)
    key = _key(key_file)
    login = Login(name, origin.url, key, authority, fingerprint_in(authority), org=org)
    login = replace(login, **_whose(login))
    if not name:
        name = login.nick if login.program else name_of(origin.host, org)
        login = replace(login, name=check_login_name(name))
    return kept(logins, login)


def kept(logins: Logins, login: Login) -> tuple[Login, Logins]:
    """A login as it is kept, its key in the keyring if there is one, and with it what is to be kept.

    Raises:
        Conflict: as `Logins.with_login`.
    """
    from postroom.client import keychain

    logins = logins.with_login(login)
    if keychain.keep(login.place, login.key):
        login = replace(login, key="")
    else:
        keychain.forget(login.place)  # an older key, from when there was a keyring that works
    return login, logins.with_login(login)


def _whose(login: Login) -> dict[str, str]:
    """Ask the post room whose key that is, over a connection that trusts the pinned authority alone.

    Raises:
        Unauthorized: it does not take the key.
    """
    from postroom.client.http import Client

    with Client.on(login.address, login.org) as client:
        me = client.me()
    return {"nick": me["nick"], "kind": me["kind"]}


def _key(file: Path | None) -> str:
    """The key, from a source that leaves no trace in a list of processes or a shell's history."""
    if file is not None:
        key, source = _from_file(file), str(file)
    elif sys.stdin.isatty():
        key, source = click.prompt("API key", hide_input=True, err=True), "the prompt"
    else:
        key, source = sys.stdin.readline(LONGEST_KEY + 2), "standard input"
    key = key.strip()
    if (
        not key
        or len(key) > LONGEST_KEY
        or not key.isascii()
        or not key.isprintable()
        or " " in key
    ):
        raise InvalidInput(f"{source} has no API key", remedy="a2a_<agent id>_<64 hex digits>")
    return key


def _from_file(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise InvalidInput(f"others can read the key in {file}", remedy=f"chmod 600 {file}")
            return opened.readline(LONGEST_KEY + 2).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {file}: {error}") from error


def fingerprint_in(authority: str) -> str:
    """The fingerprint of an authority (PEM), "" for none."""
    import ssl

    from postroom.client.pinning import fingerprint_of

    return fingerprint_of(ssl.PEM_cert_to_DER_cert(authority)) if authority else ""


def name_of(host: str, org: str) -> str:
    """What a user's own login is called if nothing else is said."""
    words = re.sub(r"[^a-z0-9]+", "-", f"{host} {org}").strip("-")
    return words[:64]


def _record(login: Login, logins: Logins) -> dict[str, Any]:
    return {
        "name": login.name,
        "url": login.url,
        "nick": login.nick,
        "org": login.org,
        "fingerprint": login.fingerprint,
        "keyring": not login.key,
        "default": login.name == logins.default,
    }


def _show(logins: Logins) -> Answer:
    record = {"logins": [_record(login, logins) for login in logins.entries.values()]}
    rows = [
        [
            Cell("*" if login.name == logins.default else ""),
            Cell(login.name),
            Cell(f"@{one_line(login.nick)}"),
            Cell(login.url),
            Cell(login.org or "-"),
            Cell(login.fingerprint[:16] or "known to this system"),
        ]
        for login in logins.entries.values()
    ]

    def say() -> None:
        print_table(("", "NAME", "YOU", "URL", "ORG", "AUTHORITY"), rows, empty="no logins")
        if not logins.default:
            click.echo(f"commands go to {HERE}")

    return record, say


def chosen(logins: Logins, name: str) -> Login:
    """The login of that name, "" for the default one."""
    if not name and not logins.default:
        raise NotFound("commands go to no other machine", remedy="postroom login --list")
    return logins.find(name or logins.default)


@click.command("logout")
@answers("name [NAME]", post_room=False)
def logout(name: str) -> Answer:
    """Forget the key of the login NAME, or of the one that commands go to.

    The key stays valid where it was made; `postroom keys revoke` ends it.
    """
    from postroom.client import keychain
    from postroom.client.logins import read

    logins = read()
    login = chosen(logins, name)
    if not login.key:
        keychain.forget(login.place)
    save(logins.without(login.name))
    said = f"forgot the key for {login.url} ({login.name})"
    return {"name": login.name, "url": login.url}, said
