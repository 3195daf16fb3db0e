"""The git program outside of a sandbox: no settings, attributes or hooks but those that it is handed over here.

`Settings` are a person's, read as data: git lists what is in a file, and takes none of it for itself.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import EnvironmentFault, InvalidInput
from postroom.sandbox import limits
from postroom.workers.workspaces import plain
from postroom_a2a.text import one_line

LOWEST = (2, 32)
"""The first version that can leave out the person's and the machine's settings (`GIT_CONFIG_GLOBAL`)."""
MERGES = (2, 38)
"""The first version that merges without touching files (`merge-tree --write-tree`)."""
DEADLINE = 120.0
"""Seconds for one command; reading a large bundle takes longest."""
MEMORY = 2 << 30
"""Bytes of memory that git may have to read what a worker wrote."""
LARGEST_ANSWER = 8 << 20
"""Bytes of a command's output that are kept."""
NOWHERE = "/dev/null/no-repository"
"""Instead of a git directory, for commands that need none: git looks for one in no folder."""

_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.splitIndex": "false",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "diff.submodule": "short",
    "fetch.fsckObjects": "true",
    "transfer.fsckObjects": "true",
    "submodule.recurse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "safe.bareRepository": "explicit",
}
_NOBODY = {"NAME": "Postroom", "EMAIL": "postroom@postroom.invalid"}
"""Who sets refs (RFC 2606); a person's commit has the person's name."""
_SHELL = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ADVICE": "0",
    "GIT_ALLOW_PROTOCOL": "file",
    "GIT_ALLOC_LIMIT": "1g",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CEILING_DIRECTORIES": "/",
    "GIT_DIR": NOWHERE,
    "LC_ALL": "C",
}

LARGEST = 1 << 20
"""Bytes of a file of settings."""
_LIST = ("--no-includes", "-z", "--list")
_ON = frozenset({"true", "yes", "on", "1", None})


@dataclass(frozen=True, slots=True)
class Settings:
    """Names, in small letters but for their middle part, and values; None for a name without one."""

    pairs: tuple[tuple[str, str | None], ...] = ()

    def get(self, name: str) -> str:
        """The last value of a setting, "" if there is none."""
        return next((value or "" for found, value in reversed(self.pairs) if found == name), "")

    def on(self, name: str) -> bool:
        """Whether a setting is there and says yes."""
        for found, value in reversed(self.pairs):
            if found == name:
                return (value.lower() if value else value) in _ON
        return False

    def ending(self, first: str, last: str) -> list[str]:
        """The values of all settings `first.…last`."""
        named = (pair for pair in self.pairs if pair[0].startswith(first))
        return [value or "" for name, value in named if name.endswith(last)]

    def __add__(self, other: Settings) -> Settings:
        return Settings(self.pairs + other.pairs)


async def settings_of_file(path: Path) -> Settings:
    """The settings in a file, without what it includes.

    Raises:
        InvalidInput: it is no plain file.
        GitFailed: git cannot read it.
    """
    try:
        place = plain.opened(path, LARGEST)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error
    try:
        return parsed_settings(await run(("config", "--file", "-", *_LIST), stdin=place))
    finally:
        os.close(place)


async def settings_of_person() -> Settings:
    """The person's own settings and, before them, the machine's; without what they include."""
    found = Settings()
    for scope in ("--system", "--global"):
        try:
            found += parsed_settings(await run(("config", scope, *_LIST), persons=True))
        except GitFailed:
            continue  # there is no such file
    return found


def parsed_settings(listed: bytes) -> Settings:
    """The settings that `git config -z --list` prints."""
    entries = listed.decode(errors="surrogateescape").split("\0")
    split = (entry.partition("\n") for entry in entries if entry)
    return Settings(tuple((name, value if mark else None) for name, mark, value in split))


class GitFailed(EnvironmentFault):
    """A git command failed; the text is what git said."""


async def run(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    place: Path = Path("/"),
    stdin: int = asyncio.subprocess.DEVNULL,
    codes: tuple[int, ...] = (0,),
    stranger: bool = False,
    persons: bool = False,
    most: int = LARGEST_ANSWER,
) -> bytes:
    """What `git WORDS` prints, at most `most` bytes of it.

    Args:
        env: variables beside those that shut everything out.
        settings: beside our own.
        place: the folder to run in.
        stdin: a descriptor to read from.
        codes: exit codes that are no failure.
        stranger: it reads what a worker wrote, so its memory is bounded.
        persons: it may know where the person's own settings are.

    Raises:
        GitFailed: it failed, or took too long.
        InvalidInput: there is no git on this machine.
    """
    command = [_program(), "--no-pager", *words]
    if stranger:
        command = [*limits.SCRIPT, limits.__file__, str(MEMORY), "-", "-", "--", *command]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=place,
        env=_environment(_SETTINGS | dict(settings or {}), persons) | dict(env or {}),
    )
    try:
        async with asyncio.timeout(DEADLINE):
            said, wrong = await asyncio.gather(
                _read(process.stdout, most), _read(process.stderr, 64 * 1024)
            )
            code = await process.wait()
    except TimeoutError as error:
        raise GitFailed(f"git {words[0]} took over {DEADLINE:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code not in codes:
        raise GitFailed(f"git {words[0]} failed: {_short(wrong)}")
    return said


async def check_version(lowest: tuple[int, int] = LOWEST) -> None:
    """Refuse a git that is too old.

    Raises:
        InvalidInput: it is, or there is none.
    """
    said = (await run(("version",))).decode(errors="replace")
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < lowest:
        needed = ".".join(map(str, lowest))
        raise InvalidInput(
            f"this needs git {needed} or later, and here is {one_line(said, 80).strip()!r}",
            remedy="install a newer git",
        )


def _program() -> str:
    found = shutil.which("git", path=_path())
    if found is None:
        raise InvalidInput("there is no git on this machine", remedy="install it")
    return found


def _path() -> str:
    """Where to look for programs: not below the folder that a command runs in, which may be a worker's."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(place for place in places if place.startswith("/"))


def _environment(settings: Mapping[str, str], persons: bool) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    kept["PATH"] = _path()
    if persons:
        named = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
        kept |= {name: os.environ[name] for name in named if name in os.environ}
    else:
        # Without a home: there git finds attributes and ignored names, whatever the settings are.
        kept |= {"HOME": "/dev/null", "XDG_CONFIG_HOME": "/dev/null"}
        kept |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    for part, value in _NOBODY.items():
        kept |= {f"GIT_AUTHOR_{part}": value, f"GIT_COMMITTER_{part}": value}
    kept |= _SHELL | {"GIT_CONFIG_COUNT": str(len(settings))}
    # Not by -c, which takes no name with "=" in it.
    for number, (name, value) in enumerate(settings.items()):
        kept |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return kept


def _short(wrong: bytes) -> str:
    lines = [line for line in wrong.decode(errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
    return one_line("; ".join(said[-3:]), 400) or "it said nothing"


async def _read(stream: asyncio.StreamReader | None, most: int) -> bytes:
    """All of the stream, of which the first `most` bytes are kept."""
    kept = bytearray()
    while stream is not None and (chunk := await stream.read(64 * 1024)):
        kept += chunk[: max(0, most - len(kept))]
    return bytes(kept)
