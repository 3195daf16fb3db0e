"""Git outside of a sandbox, on repositories that no worker can write, with nothing in it that runs further programs.

What a worker wrote gets here as a bundle only, and is checked like anything from a stranger (`fetch.fsckObjects`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from postroom.errors import EnvironmentFault, InvalidInput
from postroom.sandbox import limits
from postroom_a2a.text import one_line

DEADLINE = 120.0
"""Seconds for one command; reading a large bundle takes longest."""
MEMORY = 2 << 30
"""Bytes of memory that git may have to read what a worker wrote."""
LARGEST_ANSWER = 8 << 20
"""Bytes of a command's output that are kept."""

_QUIET = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.alternateRefsCommand": "",
    "core.sshCommand": "false",
    "credential.helper": "",
    "diff.external": "",
    "diff.submodule": "short",
    "fetch.fsckObjects": "true",
    "transfer.fsckObjects": "true",
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "log.showSignature": "false",
    "merge.verifySignatures": "false",
    "commit.gpgSign": "false",
    "protocol.allow": "never",
    "protocol.file.allow": "always",
}
"""Settings that are set over those of the repository: nothing that a commit brings may start a program."""


class GitFailed(EnvironmentFault):
    """A git command failed; the text is what git said."""


class Git:
    """Runs git on one repository.

    Args:
        place: a folder of it, or its git directory.
    """

    def __init__(self, place: Path) -> None:
        self._place = place

    async def run(
        self,
        *words: str,
        codes: tuple[int, ...] = (0,),
        stranger: bool = False,
        most: int = LARGEST_ANSWER,
    ) -> bytes:
        """What `git WORDS` prints, at most `most` bytes of it.

        Args:
            codes: exit codes that are no failure.
            stranger: it reads what a worker wrote, so its memory is bounded.

        Raises:
            GitFailed: it failed, or took too long.
            InvalidInput: there is no git on this machine.
        """
        settings = [word for name, value in _QUIET.items() for word in ("-c", f"{name}={value}")]
        command = [_program(), "--no-pager", *settings, "-C", str(self._place), *words]
        if stranger:
            command = [*limits.SCRIPT, limits.__file__, str(MEMORY), "-", "-", "--", *command]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(),
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
            raise GitFailed(
                f"git {words[0]} failed: {_short(wrong)}", remedy=_remedy(wrong, self._place)
            )
        return said

    async def line(self, *words: str) -> str:
        """The first line that `git WORDS` prints, "" if it fails or prints nothing."""
        try:
            return _text(await self.run(*words)).partition("\n")[0]
        except GitFailed:
            return ""

    async def lines(self, *words: str) -> list[str]:
        """The lines that `git WORDS` prints."""
        return _text(await self.run(*words)).splitlines()

    async def value(self, ref: str) -> str:
        """The object that a ref names, "" if there is no such ref."""
        return await self.line("rev-parse", "--verify", "-q", f"{ref}^{{object}}")

    async def set(self, ref: str, to: str, was: str | None = None) -> None:
        """Set a ref, which names `was` now ("" for none, None for anything); GitFailed if it names another."""
        words = ["update-ref", "--no-deref", "-m", "postroom", ref, to]
        if was is not None:
            words.append(was or "0" * len(to))
        await self.run(*words)

    async def drop(self, ref: str) -> None:
        """Delete a ref, if there is one."""
        await self.run("update-ref", "--no-deref", "-d", ref)


def _text(output: bytes) -> str:
    return output.decode(errors="surrogateescape")


def _short(wrong: bytes) -> str:
    lines = [line for line in wrong.decode(errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
    return one_line("; ".join(said[-3:]), 400) or "it said nothing"


def _remedy(wrong: bytes, place: Path) -> str:
    if b"dubious ownership" in wrong:
        return f"if it is yours: git config --global --add safe.directory {place}"
    return ""


def _program() -> str:
    found = shutil.which("git")
    if found is None:
        raise InvalidInput("there is no git on this machine", remedy="install it")
    return found


def _environment() -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_ADVICE": "0",
        "LC_ALL": "C",
    }


async def _read(stream: asyncio.StreamReader | None, most: int) -> bytes:
    """All of the stream, of which the first `most` bytes are kept."""
    kept = bytearray()
    while stream is not None and (chunk := await stream.read(64 * 1024)):
        kept += chunk[: max(0, most - len(kept))]
    return bytes(kept)
