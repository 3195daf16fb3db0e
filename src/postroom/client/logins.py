"""The post rooms of other machines that this user has a key for (`postroom login`), and what of them is trusted.

They are in one file that only this user can read. Where the system has a keyring, and the extra `keyring` is
installed, the keys themselves are there (`client.keychain`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from postroom.client.locate import ServerAddress, read_private
from postroom.errors import Conflict, EnvironmentFault, InvalidInput, NotFound, Unauthorized
from postroom.protocol.ids import check_name

FILE = "logins.json"

LOCAL = "local"
"""In place of a login: the post room of this machine."""


@dataclass(frozen=True, slots=True)
class Login:
    """A post room of another machine.

    Attributes:
        name: chosen by the user.
        url: an origin, in canonical form.
        key: API key; "" if the keyring has it.
        authority: PEM of the only authority that is trusted for it, "" for those of the system.
        fingerprint: SHA-256 of that authority, hex.
        nick: who the key is for.
        org: their organisation, "" for the default one.
        kind: of that agent; "" in the files of earlier versions.
    """

    name: str
    url: str
    key: str = field(default="", repr=False)
    authority: str = field(default="", repr=False)
    fingerprint: str = ""
    nick: str = ""
    org: str = ""
    kind: str = ""

    @property
    def program(self) -> bool:
        """Whether it is that of a program and not the user's own: commands go there only if they are told to."""
        return self.kind not in ("", "human")

    @property
    def place(self) -> str:
        """What a key is for: the same place has one key of the user's, and one for each program of theirs."""
        place = f"{self.url}/orgs/{self.org}" if self.org else self.url
        return f"{place}#{self.name}" if self.program else place

    def address(self) -> ServerAddress:
        """Where it is, with its key.

        Raises:
            EnvironmentFault: the keyring does not give the key out.
        """
        from postroom.client import keychain  # most keys are in no keyring

        key = self.key or keychain.read(self.place)
        ca = "" if self.authority else os.environ.get("POSTROOM_CA", "")
        return ServerAddress(self.url, 0, key, ca, authority=self.authority)


@dataclass(frozen=True, slots=True)
class Logins:
    """All of them, by name; `default` is the one that commands go to, "" for none."""

    entries: Mapping[str, Login] = field(default_factory=dict)
    default: str = ""

    def find(self, ref: str) -> Login:
        """The login of that name or URL.

        Raises:
            NotFound: no login has that name.
            Unauthorized: there is no key for that URL.
        """
        if "://" in ref:
            from postroom.protocol.origins import origin_of

            url = origin_of(ref).url
            if found := [login for login in self.entries.values() if login.url == url]:
                return min(found, key=lambda each: (each.name != self.default, each.program))
            raise Unauthorized(f"there is no key for {url}", remedy=f"postroom login {url}")
        if ref not in self.entries:
            known = ", ".join(self.entries) or "there is none yet: postroom login URL"
            raise NotFound(f"there is no login {ref!r}", remedy=f"one of: {known}")
        return self.entries[ref]

    def with_login(self, login: Login) -> Logins:
        """With this one more, as the default unless it is a program's; it replaces those with its name or its place.

        Raises:
            Conflict: a program's would replace one of the user's own.
        """
        named = self.entries.get(login.name)
        if named is not None and login.program and not named.program:
            raise Conflict(
                f"{login.name!r} is your own login at {named.url}", remedy="--name another"
            )
        kept = {
            name: each
            for name, each in self.entries.items()
            if name != login.name and each.place != login.place
        }
        return Logins(kept | {login.name: login}, self.default if login.program else login.name)

    def without(self, name: str) -> Logins:
        """Without that one."""
        kept = {each: login for each, login in self.entries.items() if each != name}
        return Logins(kept, "" if self.default == name else self.default)

    def using(self, ref: str) -> Logins:
        """With another default: a name, a URL, or `LOCAL` for none."""
        return replace(self, default="" if ref == LOCAL else self.find(ref).name)

    def dump(self) -> bytes:
        """The content of the file."""
        entries = [asdict(login) for login in self.entries.values()]
        return json.dumps({"default": self.default, "logins": entries}, indent=1).encode()


def path() -> Path:
    """The file.

    Raises:
        EnvironmentFault: the user has no home.
    """
    try:
        return user_config_path("postroom") / FILE
    except RuntimeError as error:
        raise EnvironmentFault("there is no home folder for logins", remedy="set HOME") from error


def read() -> Logins:
    """The logins of this user.

    Raises:
        EnvironmentFault: the file is not private to this user, or not in the form that `login` writes.
    """
    file = path()
    content = read_private(file)
    if content is None:
        return Logins()
    try:
        said = json.loads(content)
        found = [_login(each) for each in said["logins"]]
        return Logins({login.name: login for login in found}, str(said["default"]))
    except (ValueError, KeyError, TypeError, InvalidInput) as error:
        raise EnvironmentFault(
            f"{file} is not what `postroom login` writes", remedy="remove it, and log in again"
        ) from error


def default_login() -> Login | None:
    """The login that commands go to if nothing else is said, None for none."""
    found = read()
    return found.entries.get(found.default)


def check_login_name(name: str) -> str:
    """`name`, if a login can have it."""
    if name == LOCAL:
        raise InvalidInput(
            f"{LOCAL!r} stands for the post room of this machine", remedy="--name another"
        )
    return check_name(name, "login")


def _login(said: Any) -> Login:
    from postroom.protocol.origins import origin_of

    login = Login(**{name: str(value) for name, value in said.items()})
    return replace(login, name=check_login_name(login.name), url=origin_of(login.url).url)
