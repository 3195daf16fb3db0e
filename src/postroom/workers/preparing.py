"""Checks all that a worker is started from, before anything is made or ended.

`demand` says the least level of its wall. A template may ask for a stronger wall than the post room demands; a weaker
one is for the person who spawns (`--isolation`, `--sandbox`) or who runs the post room (`up --sandbox`, its settings).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib.metadata import entry_points

from postroom.errors import Conflict, Forbidden, InvalidInput, InvalidTemplate
from postroom.gateway.credentials import check_credentials
from postroom.http.outbound import OutboundPolicy, check_address
from postroom.protocol.egress import AllowList
from postroom.protocol.hosts import is_address
from postroom.protocol.template import ADAPTER_GROUP, ADAPTERS, Template, declared, parse_template
from postroom.sandbox.port import FarProvider, Level
from postroom.sandbox.select import AUTO, Chosen, select, stated_level
from postroom.sandbox.template_check import check_program
from postroom.settings import DEFAULT_PROJECT
from postroom.store.agents import Agent
from postroom.store.workers import WorkerRecord
from postroom.templates.programs import refound
from postroom.workers.launch import decode_files
from postroom.workers.parts import WorkerParts
from postroom.workers.reach import BY, Reach


@dataclass(frozen=True, slots=True)
class Demand:
    """The sandbox to start a worker in, and the least level that it must have proven."""

    sandbox: str
    at_least: Level


def level_of(name: str) -> Level:
    """The level called `name`."""
    try:
        return Level(name)
    except ValueError:
        raise InvalidInput(
            f"there is no isolation {name!r}", remedy="one of " + ", ".join(Level)
        ) from None


def demand(
    template: Template, *, sandbox: str, isolation: str, default_sandbox: str, default: str
) -> Demand:
    """The sandbox and the least level for a worker of `template`.

    Args:
        sandbox: named by the person who spawns, "" for none.
        isolation: the level that this person accepts, "" if they named none.
        default_sandbox: the post room's own.
        default: the level that the post room demands.

    Raises:
        Forbidden: the template asks for a weaker wall than a person has allowed.
    """
    chosen = sandbox or template.sandbox or default_sandbox
    stated = stated_level(chosen)
    if isolation:
        at_least = level_of(isolation)
    else:
        # To name a sandbox is to ask for its level; the operator's default does so for all workers.
        at_least = _lowered(_lowered(level_of(default), default_sandbox), sandbox or AUTO)
    if not sandbox and stated is not None and stated.weaker_than(at_least):
        raise _forbidden(f"the sandbox {chosen!r}, which is {_called(stated)}", stated)
    if template.isolation and not isolation and sandbox in {"", AUTO}:
        wanted = level_of(template.isolation)
        if wanted.weaker_than(at_least):
            raise _forbidden(f"the isolation {wanted}", wanted)
        at_least = wanted
    return Demand(chosen, at_least)


def _lowered(level: Level, sandbox: str) -> Level:
    stated = stated_level(sandbox)
    return stated if stated is not None and stated.weaker_than(level) else level


def _called(level: Level) -> str:
    return "no wall" if level is Level.NONE else f"a {level} wall"


def _forbidden(what: str, level: Level) -> Forbidden:
    option = "--sandbox none" if level is Level.NONE else f"--isolation {level}"
    return Forbidden(
        f"the template asks for {what}: only a person may allow that",
        remedy=f"read the template; if it may do all that this allows: {option}",
    )


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that a start needs besides the worker itself.

    Attributes:
        reach: what of the machine it may have.
    """

    template: Template
    files: Mapping[str, bytes]
    chosen: Chosen
    reach: Reach


@dataclass(frozen=True, slots=True)
class TemplateRenewal:
    """A new template for a worker.

    Attributes:
        record: the worker's, with the new template.
        changed: the keys and files that differ, for people.
    """

    prepared: Prepared
    record: WorkerRecord
    changed: tuple[str, ...]


class Preparing:
    """Checks templates and chooses sandboxes."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._settings = parts.settings

    async def prepare(
        self,
        text: str,
        files: Mapping[str, str],
        values: Mapping[str, str],
        reach: Reach,
        *,
        sandbox: str,
        isolation: str,
        least: Level = Level.NONE,
    ) -> Prepared:
        """Check a person's template and choose the sandbox.

        Args:
            files: that it names, in base64.
            reach: of the person.
            sandbox: that the person asks for, "" for none.
            isolation: that the person accepts, "" if they named none.
            least: level that the wall must have in any case.

        Raises:
            InvalidTemplate: the template, a value or a file is not valid, or cannot work here.
            Forbidden: only the template asks for a weaker wall than is demanded, or it is beyond the person's reach.
            AddressRefused: it names a private address that the operator has not opened.
            SandboxUnavailable: this machine has no such wall.
        """
        template = parse_template(text, values)
        decoded = decode_files(template, files)
        check_adapter(template.adapter)
        check_credentials(template, self._parts.credentials())
        check_open(template, OutboundPolicy.parse(self._settings.egress_private))
        demanded = demand(
            template,
            sandbox=sandbox,
            isolation=isolation,
            default_sandbox=self._settings.sandbox,
            default=self._settings.isolation,
        )
        if isolation:
            reach.refuse_wall(level_of(isolation))
        if demanded.at_least.weaker_than(least):
            demanded = Demand(demanded.sandbox, least)
        chosen = await self._choose(demanded, reach)
        await asyncio.to_thread(reach.refuse_template, template)
        provider = chosen.provider
        if not isinstance(provider, FarProvider):
            check_program(template, provider.shown, all_shown=provider.states is Level.NONE)
        return Prepared(template, decoded, chosen, reach)

    async def reach(self, by: str) -> Reach:
        """What of the machine `by` may give a worker now (`reach.BY`)."""
        openings = await self._parts.database.read(lambda store: store.openings.openings())
        return Reach.of(by, self._settings.org, openings)

    async def again(self, record: WorkerRecord) -> Prepared:
        """Check the stored template of a worker; its wall is never weaker than when a person spawned it.

        Raises:
            Forbidden: it has more of the machine than whoever it is judged for may give it now.
        """
        reach = await self.reach(record.origin.get(BY, ""))
        values = await asyncio.to_thread(refound, record.template, record.overrides)
        template = parse_template(record.template, values)
        chosen = await self._choose(Demand(record.sandbox, _least(record)), reach)
        await asyncio.to_thread(reach.refuse_template, template)
        return Prepared(template, decode_files(template, record.files), chosen, reach)

    async def refuse_beyond(self, record: WorkerRecord, by: str) -> None:
        """Raise Forbidden if a worker has more of the machine than `by` may give one; its folder apart."""
        reach = await self.reach(by)
        reach.refuse_wall(_least(record))
        template = parse_template(record.template, record.overrides)
        await asyncio.to_thread(reach.refuse_template, template)

    async def _choose(self, demanded: Demand, reach: Reach) -> Chosen:
        stated = stated_level(demanded.sandbox)
        if stated is not None:
            reach.refuse_wall(stated)
        chosen = await select(
            demanded.sandbox,
            binary=self._settings.bwrap,
            at_least=demanded.at_least,
            remote=self._parts.remote,
        )
        reach.refuse_wall(chosen.capability.level)
        return chosen

    async def renew(
        self, agent: Agent, record: WorkerRecord, text: str, files: Mapping[str, str]
    ) -> TemplateRenewal:
        """Check a new template for a worker; a Conflict if it would make it another worker."""
        said, kept = record.origin, declared(text)
        values = {name: value for name, value in record.overrides.items() if name in kept}
        values = await asyncio.to_thread(refound, text, values)
        prepared = await self.prepare(
            text,
            files,
            values,
            await self.reach(said.get(BY, "")),
            sandbox=said.get("sandbox", ""),
            isolation=said.get("isolation", ""),
            least=_least(record),
        )
        _refuse_another(agent, record, prepared.template)
        chosen = prepared.chosen
        renewed = replace(
            record,
            template=text,
            files=dict(files),
            overrides=values,
            sandbox=chosen.provider.name,
            level=chosen.capability.level.value,
        )
        return TemplateRenewal(prepared, renewed, _differences(record, renewed))


def check_open(template: Template, policy: OutboundPolicy) -> None:
    """Raise AddressRefused if the template lists an address that the gateway would refuse at each request."""
    for rule in AllowList.parse(template.egress).rules:
        host = "127.0.0.1" if rule.host == "localhost" else rule.host
        if is_address(host) and not rule.wildcard:
            check_address(host, rule.host, rule.port, policy)


def _least(record: WorkerRecord) -> Level:
    if record.level:
        return level_of(record.level)
    return stated_level(record.sandbox) or Level.ENFORCED


def _refuse_another(agent: Agent, record: WorkerRecord, template: Template) -> None:
    """A worker keeps its nick and project for life: other agents know it by them."""
    anew = f"change it back, or spawn a new worker from it and remove @{agent.nick}"
    if not record.origin.get("name") and template.name != agent.nick:
        raise Conflict(
            f"the template names its worker {template.name!r} now, but @{agent.nick} keeps its nick",
            remedy=anew,
        )
    project = template.project or DEFAULT_PROJECT
    if not record.origin.get("project") and project != record.project:
        raise Conflict(
            f"the template names the project {project!r} now, and @{agent.nick} stays in "
            f"{record.project!r}",
            remedy=anew,
        )


def _differences(before: WorkerRecord, after: WorkerRecord) -> tuple[str, ...]:
    old, new = (parse_template(r.template, r.overrides) for r in (before, after))
    keys = [
        item.name
        for item in fields(Template)
        if item.name != "files" and getattr(old, item.name) != getattr(new, item.name)
    ]
    names = sorted({*before.files, *after.files})
    files = [name for name in names if before.files.get(name) != after.files.get(name)]
    return (*keys, *(f"file {name}" for name in files))


def check_adapter(name: str) -> None:
    """Raise InvalidTemplate for an adapter that neither Postroom nor an installed package has."""
    if name in ADAPTERS:
        return
    theirs = sorted({entry.name for entry in entry_points(group=ADAPTER_GROUP)})
    if name not in theirs:
        raise InvalidTemplate(
            f"there is no adapter {name!r}",
            remedy=f"workstation.adapter is one of {', '.join((*ADAPTERS, *theirs))}; "
            "for another one install the package that has it where Postroom is (docs/adapters.md)",
        )
