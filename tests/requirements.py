"""The manifest of promises: everything Postroom says it does, each with its source.

A test that proves a promise carries `@pytest.mark.requirement("<id>")`. `tests/manifest` holds both sides
together: a promise without a test fails, and so does a mark that names no promise. `docs/promises.md` is
written from this file (`python -m tools.promises`).

An id has the form `area-noun-verb`; its first word is the heading under which docs/promises.md lists it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

ID_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
# A heading of one of our documents, or the name of a published specification with its place.
SOURCE_PATTERN = re.compile(
    r"[\w./-]+\.md#[\w-]+|(RFC \d+|A2A|MCP|ACP|NATS|XDG|NO_COLOR|Standard Webhooks)( .+)?"
)


@dataclass(frozen=True)
class Requirement:
    """One promise: a stable id, where it comes from, and the behaviour in one sentence."""

    id: str
    source: str
    behaviour: str

    def __post_init__(self) -> None:
        if not ID_PATTERN.fullmatch(self.id):
            raise ValueError(f"{self.id!r} does not have the form area-noun-verb")
        if not SOURCE_PATTERN.fullmatch(self.source):
            raise ValueError(
                f"{self.id}: {self.source!r} names no document heading or specification"
            )
        if not self.behaviour.endswith("."):
            raise ValueError(f"{self.id}: the behaviour is a sentence and ends with a full stop")

    @property
    def area(self) -> str:
        """The first word of the id."""
        return self.id.partition("-")[0]


def by_id(requirements: Iterable[Requirement]) -> dict[str, Requirement]:
    """Index the promises; the same id twice raises ValueError."""
    index: dict[str, Requirement] = {}
    for requirement in requirements:
        if requirement.id in index:
            raise ValueError(f"{requirement.id} is listed twice")
        index[requirement.id] = requirement
    return index


REQUIREMENTS: dict[str, Requirement] = by_id(
    [
        # ── manifest: this file ──────────────────────────────────────────────────────────────────
        Requirement(
            "manifest-marks-known",
            "CONTRIBUTING.md#promises",
            "A test can only be marked with a promise that the manifest lists.",
        ),
        Requirement(
            "manifest-promises-tested",
            "CONTRIBUTING.md#promises",
            "Each promise of the manifest is proved by at least one test.",
        ),
        Requirement(
            "manifest-sources-exist",
            "CONTRIBUTING.md#promises",
            "Each heading that a promise names as its source exists.",
        ),
        Requirement(
            "manifest-document-current",
            "CONTRIBUTING.md#promises",
            "docs/promises.md lists the promises of the manifest, no more and no fewer.",
        ),
        Requirement(
            "manifest-skips-refused",
            "CONTRIBUTING.md#promises",
            "In CI a skipped test of a promise fails the run.",
        ),
        # ── repo: what a checkout contains ───────────────────────────────────────────────────────
        Requirement(
            "repo-registry-unnamed",
            "CONTRIBUTING.md#dependencies",
            "No file names the address of a package registry; the installing client chooses it.",
        ),
        Requirement(
            "repo-machine-unnamed",
            "CONTRIBUTING.md#dependencies",
            "No file names a folder of the machine that it was written on.",
        ),
        # ── package: what an installation brings ─────────────────────────────────────────────────
        Requirement(
            "package-imports-declared",
            "CONTRIBUTING.md#dependencies",
            "Each third-party module that the source imports belongs to a declared dependency.",
        ),
        Requirement(
            "package-bounds-stated",
            "CONTRIBUTING.md#dependencies",
            "Each dependency has a lower and an upper bound.",
        ),
        Requirement(
            "package-lock-current",
            "CONTRIBUTING.md#dependencies",
            "The pinned versions satisfy pyproject.toml, and base and dev pin the same ones.",
        ),
        Requirement(
            "package-footprint-bounded",
            "CONTRIBUTING.md#dependencies",
            "The base install stays under 75 packages and 180 MB.",
        ),
    ]
)
