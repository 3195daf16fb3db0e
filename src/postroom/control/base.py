"""The first parts of an organisation: its connection to the bus, its database and the projection in it."""

from __future__ import annotations

import asyncio
import getpass
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial

from postroom.blobs import rules as blob_rules
from postroom.bus.host import BusHost
from postroom.bus.nats.admin import NatsAdmin, ensure_all
from postroom.bus.nats.bus import NatsBus
from postroom.control import nats_server
from postroom.control.app import Installation
from postroom.directory.agents import Directory, Takers
from postroom.directory.presence import PAUSE, Callers
from postroom.disk import check_space
from postroom.errors import PostroomError, ServersBehind
from postroom.events import fold as event_rules
from postroom.events.approvals import Approvals
from postroom.events.clerk import ApprovalClerk, ApprovalExpiry
from postroom.events.policies import Policies
from postroom.events.service import EventLog
from postroom.identity.account_publisher import push_accounts, system_connection
from postroom.identity.jwt import Credential
from postroom.identity.pins import Pins
from postroom.identity.trust import Trust
from postroom.mail import outbox, projection
from postroom.mail.alerts import AlertService
from postroom.mail.clerk import Clerk, Expiry
from postroom.mail.deadletters import DeadLetterMover, DeadLetterService
from postroom.mail.inbox import Inboxes
from postroom.mail.integrity import AlteredAlerts, sign_all
from postroom.mail.office import PostOffice
from postroom.mail.outbox import Outbox
from postroom.mail.relay import Relay
from postroom.observe import get_logger
from postroom.observe.supervision import SELDOM, Supervisor, supervisor
from postroom.projection.changes import APPROVALS, Changes
from postroom.projection.due import Watch
from postroom.projection.fold import Fold
from postroom.projection.rebuild import catch_up
from postroom.projection.retention import Pruner, Retention
from postroom.projection.rules import together
from postroom.projection.submit import Submitter, append_alert
from postroom.protocol.alerts import Alert
from postroom.protocol.ids import CONTROL_PLANE, NAME, UID
from postroom.protocol.streams import BY_NAME
from postroom.settings import DEFAULT_ORG, Settings
from postroom.settings.keeping import keeping, parse_age
from postroom.store import copying
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.migrate import migrate_patiently
from postroom.store.place import place_of
from postroom.store.signing import Signer
from postroom.tasks import rules as task_rules
from postroom.tasks.chain import Chain
from postroom.tasks.clerk import TaskClerk

log = get_logger(__name__)

RULES = together(
    projection.RULES, outbox.RULES, task_rules.RULES, blob_rules.RULES, event_rules.RULES
)
"""The rules of the fold for each stream, after those that they build on."""

OVER = projection.OVER | outbox.OVER | task_rules.OVER | event_rules.OVER
"""The rules for what is deleted from the log."""

COPY = BY_NAME["AUDIT"]
"""The stream with the copy of the audit log."""

FOLD_DEADLINE = 60.0
"""Seconds at the start for folding the records that SQL does not have yet."""

TASKS_DEADLINE = 4.0
"""Seconds that an answer about tasks waits until the present log is folded; sidecars wait a little longer."""


@dataclass(frozen=True, slots=True)
class Base:
    """The first parts of an organisation.

    Attributes:
        bus, admin: the control plane's connection to the account with the streams.
        chain: ends tasks whose worker cannot.
        takers: says what each agent takes.
        space: raises `StateUnwritable` while the disk is full.
        background: its background work; what is fatal there ends the organisation.
        behind: whether a server of the cluster has not got the accounts yet.
    """

    installation: Installation
    settings: Settings
    trust: Trust
    database: Database
    bus: NatsBus
    admin: NatsAdmin
    directory: Directory
    callers: Callers
    owner: Agent
    changes: Changes
    takers: Takers
    submitter: Submitter
    office: PostOffice
    outbox: Outbox
    events: EventLog
    inboxes: Inboxes
    deadletters: DeadLetterService
    alerts: AlertService
    fold: Fold
    clerk: Clerk
    relay: Relay
    chain: Chain
    task_clerk: TaskClerk
    approvals: Approvals
    approval_clerk: ApprovalClerk
    policies: Policies
    pins: Pins
    retention: Retention
    space: Callable[[], None]
    background: Supervisor
    behind: bool

    @property
    def supervisors(self) -> list[Supervisor]:
        """Of the background work that its operator is shown: for the default one also the installation's."""
        own = self.trust.org == DEFAULT_ORG
        return [self.background, *([self.installation.background] if own else [])]

    async def tasks_folded(self) -> None:
        """Return when every record about tasks that is in the log now is folded; a TimeoutError if that is late."""
        for stream in ("INBOX", "TASKS"):
            last = await self.admin.last_sequence(stream)
            await self.fold.reached(stream, last, TASKS_DEADLINE)

    async def sweep(self) -> None:
        """End what waits for a retired agent: messages to it, tasks that it had taken, and what it has asked for."""
        try:
            # Otherwise a task that the agent took just now would look like one that nobody took.
            await self.tasks_folded()
        except TimeoutError:
            log.warning("the last records of a retired agent are not folded in time")
        await self.clerk.sweep()
        await self.task_clerk.end_hopeless()
        await self.approval_clerk.sweep()

    async def uid_of(self, ref: str) -> str:
        """The uid of `ref`, also of a retired agent and of those of other organisations; "" for ""."""
        if not ref or UID.fullmatch(ref):
            return ref
        return (await self.directory.known(ref)).uid


async def open_base(
    installation: Installation, settings: Settings, trust: Trust, stack: AsyncExitStack
) -> Base:
    """Open the first parts; on return everything in the log is folded. `stack` closes them.

    Raises:
        TimeoutError: folding took longer than `FOLD_DEADLINE`.
    """
    keys, signer = trust.message_keys(), signer_of(trust)
    database = Database(place_of(settings), signer)
    stack.push_async_callback(database.close)
    await migrate_patiently(database)
    if not settings.memory:
        await catch_up(database, copying.last(settings.snapshots))
    if keys.unsigned or keys.former:
        await sign_messages(settings, trust, database)
    bus, admin, behind = await open_bus(settings, trust, installation.host, stack)
    directory = Directory(database, org=trust.org)
    changes = Changes()
    stack.callback(changes.close)
    clerk = Clerk(bus, database)
    chain = Chain(bus, admin, database)
    task_clerk = TaskClerk(bus, database, chain, alert=partial(append_alert, bus))
    space = _space(settings)
    alerts = AlertService(bus, admin, database, changes, space=space)
    relay = Relay(
        trust.org,
        bus,
        admin,
        database,
        clerk,
        alerts.raise_alert,
        installation.relays,
        installation.decisions,
        limits=installation.pairs,
    )
    events = EventLog(bus, admin, database, space=space)
    approval_clerk = ApprovalClerk(events, database, alerts.raise_alert)
    after = (clerk.after, relay.after, task_clerk.after, approval_clerk.after)
    fold = Fold(admin, database, changes, RULES, after, task_rules.ORDER, tell=alerts.tell)
    background = await stack.enter_async_context(supervisor(trust.org))
    # It waits out by itself what passes; anything else means that log and database do not belong together.
    background.supervise("fold", fold.run, fatal=(Exception,))
    background.tell_by(alerts.tell, left=True)
    background.supervise("altered-messages", AlteredAlerts(signer, alerts.raise_alert).run)
    if kept := database.place.kept:
        text = f"its database was brought to this version; as it was before, it is in {kept}"
        await append_alert(bus, Alert("database-migrated", text))
    mover = DeadLetterMover(bus, admin, database, clerk)
    background.supervise("dead-letters", mover.run)
    background.supervise("expiry", Watch(Expiry(database, clerk), changes).run)
    retention = _retention(settings, trust, admin, database)
    if not settings.memory:
        background.supervise("retention", retention.run, retry=SELDOM)
    expiry = Watch(ApprovalExpiry(events, database), changes, topic=APPROVALS)
    background.supervise("approvals", expiry.run)
    await fold.ready(FOLD_DEADLINE)
    takers = Takers(others=installation.opened)
    submitter = Submitter(bus, admin, space=space)
    office = PostOffice(
        submitter,
        database,
        changes,
        org=trust.org,
        takers=takers,
        decisions=installation.decisions,
        limits=installation.pairs,
    )
    callers = await _callers(database, directory, background, stack)
    inboxes = Inboxes(bus, database, changes, office, callers)
    await inboxes.open()
    return Base(
        installation=installation,
        settings=settings,
        trust=trust,
        database=database,
        bus=bus,
        admin=admin,
        directory=directory,
        callers=callers,
        owner=await _owner(directory),
        changes=changes,
        takers=takers,
        submitter=submitter,
        outbox=Outbox(submitter, database, changes),
        events=events,
        office=office,
        inboxes=inboxes,
        deadletters=DeadLetterService(bus, database, changes),
        alerts=alerts,
        fold=fold,
        clerk=clerk,
        relay=relay,
        chain=chain,
        task_clerk=task_clerk,
        approvals=Approvals(events, database, changes, fold),
        approval_clerk=approval_clerk,
        policies=Policies(events, database),
        pins=Pins(settings.pins_file),
        retention=retention,
        space=space,
        background=background,
        behind=behind,
    )


def signer_of(trust: Trust) -> Signer:
    """What signs the messages of that organisation."""
    keys = trust.message_keys()
    return Signer(trust.org, keys.secrets, unsigned=keys.unsigned)


async def sign_messages(
    settings: Settings,
    trust: Trust,
    database: Database,
    copy: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Sign all messages with the present key, those of the last snapshot too; then the former keys are dropped.

    After a kill at any point it is done again.

    Args:
        copy: takes a snapshot while others may; None at a start.

    Raises:
        StateUnwritable: the disk is full; the former keys still count.
    """
    signed = await sign_all(database)
    if not settings.memory and (kept := copying.last(settings.snapshots)) is not None:
        await (copy() if copy else asyncio.to_thread(copying.take, database, kept, trust.org))
    keys = trust.messages_signed()
    if database.signer is not None:
        database.signer.use(keys.secrets)
        database.signer.unsigned = False
    log.info("%d messages were signed", signed)


async def _callers(
    database: Database, directory: Directory, background: Supervisor, stack: AsyncExitStack
) -> Callers:
    callers = Callers(database, directory)
    await callers.open()

    async def flush() -> None:
        with suppress(PostroomError):  # as after a crash
            await callers.flush()

    stack.push_async_callback(flush)
    background.supervise("callers", callers.flush, every=PAUSE)
    return callers


def _retention(settings: Settings, trust: Trust, admin: NatsAdmin, database: Database) -> Retention:
    kept = {
        "messages": settings.keep_messages,
        "tasks": settings.keep_tasks,
        "events": settings.keep_events,
        "posts": settings.keep_posts,
        "announcements": settings.keep_announcements,
    }
    pruner = Pruner(database, keeping(kept, settings.keep_projects))
    return Retention(admin, database, settings.snapshots, OVER, org=trust.org, pruner=pruner)


def _space(settings: Settings) -> Callable[[], None]:
    if settings.memory or settings.nats_urls:
        return lambda: None  # the store is not on our disk
    return lambda: check_space(settings.nats)


async def connect(
    host: BusHost, credential: Callable[[], Credential], name: str, stack: AsyncExitStack
) -> NatsBus:
    """A connection of the control plane, with the credential that is current at each connect; `stack` closes it."""
    bus = await NatsBus.connect(
        host.address,
        uid=CONTROL_PLANE,
        jwt=lambda: credential().jwt,
        sign=lambda nonce: credential().sign(nonce),
        name=name,
        on_error=lambda error: log.warning("%s: %s", name, error),
    )
    stack.push_async_callback(bus.close)
    return bus


async def open_bus(
    settings: Settings, trust: Trust, host: BusHost, stack: AsyncExitStack
) -> tuple[NatsBus, NatsAdmin, bool]:
    """The control plane's connection to core; accounts, streams and their durability are set up.

    Returns:
        The bus, its administration, and whether a server of the cluster has not got the accounts yet.

    Raises:
        Conflict: the log is on another bus.
        ServerFailed: the server refused an account or a stream.
    """
    behind = False
    system = await system_connection(host.address, trust.system_credential())
    try:
        try:
            await push_accounts(system, trust)
        except ServersBehind as error:  # a cluster runs on while a server is away
            log.warning("accounts: %s", error)
            behind = True
        await host.check(system)
    finally:
        await system.close()
    credential = trust.core_credential()
    bus = await connect(host, lambda: credential, "postroom", stack)
    admin = NatsAdmin(
        bus,
        memory=settings.memory,
        replicas=host.replicas,
        own_server=not settings.nats_urls,
    )
    await nats_server.check_log(settings, admin)
    await ensure_all(admin)
    kept = parse_age(settings.keep_audit).seconds
    if kept is not None and kept < COPY.max_age:
        await admin.ensure_stream(replace(COPY, max_age=kept))
    await nats_server.remember(settings, admin)
    return bus, admin, behind


async def _owner(directory: Directory) -> Agent:
    """The operator, the first person of all: made at the first start and named like the user of this machine."""
    people = [agent for agent in await directory.all() if agent.kind == "human"]
    if people:
        return min(people, key=lambda agent: (agent.created_at, agent.uid))
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a uid that this machine has no name for, as in a container
        user = ""
    nick = re.sub(r"[^a-z0-9_-]", "-", user.lower())[:64]
    return await directory.register(nick if NAME.fullmatch(nick) else "operator", "human")
