"""The composition root of one organisation: every part, opened in order and closed in reverse.

    database, bus, folds (`control.base`) → workers and their cards → tasks → blobs → audit → requests of agents → API

It stands on the installation (`control.app`), which all organisations share.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from postroom.audit.copying import AuditCopy
from postroom.audit.log import Alarm
from postroom.audit.reading import Cursor
from postroom.audit.server import Connections, Outsiders, StoredRecords
from postroom.audit.view import AuditView
from postroom.blobs.folder import BlobFolder
from postroom.blobs.service import INTERVAL, BlobService
from postroom.bus.host import BusHost
from postroom.bus.nats.bus import NatsBus
from postroom.control.a2a.door import A2ADoor
from postroom.control.acts import Acts
from postroom.control.agent_requests import AgentRequests
from postroom.control.api import OPERATIONS, build_api
from postroom.control.app import Installation, OrgGateway
from postroom.control.base import Base, connect, open_base, sign_messages
from postroom.control.in_flight import Guard
from postroom.control.orgs import Orgs
from postroom.control.parts import Parts
from postroom.control.principals import Gate
from postroom.control.readiness import Readiness
from postroom.control.remote import remote_agents, remote_work
from postroom.control.rotation import Rotation
from postroom.control.statefile import Announcement
from postroom.control.task_news import TaskNews
from postroom.control.task_spans import TaskSpans
from postroom.control.terminals import Terminals
from postroom.directory.cards import Card
from postroom.directory.claims import Claims
from postroom.directory.iam import LocalIAM
from postroom.directory.joining import Joining
from postroom.directory.letting_in import Grants
from postroom.directory.outside import OutsideAgents
from postroom.directory.presence import PresenceBoard
from postroom.directory.registry import Announcements, CardRegistry
from postroom.directory.search import AgentSearch
from postroom.directory.sessions import EXPIRY_INTERVAL, Sessions
from postroom.errors import EnvironmentFault, PostroomError, ServerFailed
from postroom.feed.records import watch_bus
from postroom.identity.account_publisher import BEHIND, Accounts, delete_accounts, system_connection
from postroom.identity.jwt import Credential
from postroom.identity.tokens import OperatorKey
from postroom.identity.trust import Trust
from postroom.mail.patience import Patience, Waits, offline_since
from postroom.observe import get_logger, tracing
from postroom.observe.supervision import SELDOM
from postroom.projection.changes import APPROVALS, Change
from postroom.projection.due import Watch
from postroom.projection.submit import append_alert
from postroom.protocol import shapes
from postroom.protocol.alerts import Alert
from postroom.push.configs import PushService
from postroom.push.pusher import OUTCOMES, Pusher
from postroom.push.webhooks import WebhookService
from postroom.settings import Settings
from postroom.settings.keeping import parse_pauses
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.sessions import SessionRow
from postroom.tasks.assignment import TaskAssigner, TaskRetries
from postroom.tasks.reports import SilentTasks, TaskReports
from postroom.tasks.requests import OpenTasks, Requests
from postroom.tasks.service import OrgTaskService
from postroom.webhooks.sender import PAUSES, Schedule
from postroom.webhooks.signing import WebhookKey
from postroom.workers.following import BranchFollower, WorkFollower, brought_back
from postroom.workers.lifecycle import Workers
from postroom.workers.parts import Issuer, WorkerParts
from postroom.workers.status import WorkerChanges, WorkerStates, WorkerViews
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.mailbox import Mailbox

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Organisation:
    """An organisation whose parts are open; `key` is the operator's API key, the same for all of them."""

    parts: Parts
    key: OperatorKey

    @classmethod
    async def open(
        cls,
        installation: Installation,
        settings: Settings,
        trust: Trust,
        stack: AsyncExitStack,
        *,
        key: OperatorKey | None = None,
        rotated: Callable[[], None] = lambda: None,
    ) -> Organisation:
        """Open every part but the API.

        Args:
            settings: of this organisation; its folders are its own.
            trust: keys, seen from this organisation.
            key: the operator's API key, None for the default organisation to find or make it.
            rotated: called when that key was replaced.
        """
        base = await open_base(installation, settings, trust, stack)
        key = key or OperatorKey.load_or_create(settings.operator_key_file, base.owner.uid)
        return cls(await _open_parts(base, key, rotated, stack), key)

    @property
    def owner(self) -> Agent:
        """The operator, as an agent of this organisation."""
        return self.parts.owner

    async def go(self, announcement: Callable[[], Announcement], orgs: Orgs | None = None) -> None:
        """Open the API, then start again the workers that ran.

        Args:
            announcement: returns the present content of `server.json`.
            orgs: all organisations, for the default one to manage.
        """
        door = A2ADoor(self.parts, build_api(self.parts, announcement, orgs))
        shared = self.parts.installation
        guard = Guard(shared.in_flight, shared.audit, self.owner.org)
        away = Readiness(self.parts).away
        shared.router.open(door.serve, self.owner.org, guard, door, away)
        await self.parts.workers.restore()

    async def alert(self, alert: Alert) -> None:
        """Raise an alert in this organisation."""
        await self.parts.alerts.raise_alert(alert)

    async def counts(self) -> shapes.OrgCounts:
        """Numbers of workers, running workers, unread messages and dead letters."""
        parts = self.parts
        records = await parts.workers.records()
        unread = await parts.office.unread([self.owner.uid])
        return {
            "workers": len(records),
            "running": sum(parts.workers.running(agent.uid) for agent, _ in records),
            "inbox": unread.get(self.owner.uid, 0),
            "deadletters": await parts.deadletters.count(),
        }


async def _open_parts(
    base: Base, key: OperatorKey, rotated: Callable[[], None], stack: AsyncExitStack
) -> Parts:
    installation, trust = base.installation, base.trust
    changed = WorkerChanges()
    presence = PresenceBoard(base.bus, base.admin, changed=changed)
    await presence.open()
    stack.push_async_callback(presence.close)
    installation.alerts[trust.org] = base.alerts.raise_alert
    installation.pins[trust.org] = base.pins, base.owner.uid
    supervise = base.background.supervise
    accounts = Accounts(trust, installation.host, behind=base.behind)
    supervise("accounts", accounts.run, kind=BEHIND)
    issuer = Issuer(base.database, trust, accounts, base.settings.jwt_lifetime)
    workers = _open_workers(base, issuer, changed, stack)
    states = WorkerStates(workers, presence)
    outside = OutsideAgents(base.database, base.directory, base.callers, changed)
    await outside.open()
    in_flight = installation.in_flight
    iam = LocalIAM(
        base.database, base.directory, key, base.owner, cut=in_flight.cut, rotated=rotated
    )
    supervise("uses-of-keys", iam.run)
    joining = Joining(base.database, base.directory, outside, iam)
    supervise("wrong-codes", joining.run)
    sessions = await _open_sessions(base, outside, iam)
    _open_patience(base, sessions, states)

    def live_cards() -> dict[str, Card | None]:
        return states.cards() | outside.live_cards()

    async def cards(uid: str) -> dict[str, Card]:
        known = outside.cards(uid)
        return known if uid and known else known | await workers.cards(uid)

    registry = CardRegistry(base.admin.jetstream, live_cards, trust.card_key, trust.org)
    search = AgentSearch(base.directory, cards, states, base.callers, registry.signed, sessions.of)

    grants = await _open_grants(base, stack)

    def tell() -> None:
        registry.wake()
        grants.wake()
        base.changes.publish([Change("worker", 0)])

    changed.tell = tell
    base.callers.changed = changed
    renew_edge = await _open_edge(base, workers, stack)
    supervise("outages", partial(watch_bus, base.bus, base.changes))
    supervise("registry", registry.run)
    base.takers.cards = cards
    requests = Requests(
        base.submitter,
        base.database,
        takers=base.takers,
        open_tasks=OpenTasks(
            base.database,
            base.settings.limit_tasks,
            partial(installation.in_flight.limits.note, "tasks"),
        ),
    )
    tasks = OrgTaskService(
        base.bus,
        base.database,
        base.changes,
        base.chain,
        requests,
        running=workers.running,
        owner=base.owner.uid,
        there=lambda uid: workers.running(uid) or base.callers.there(uid),
        blocker=lambda uid: states.blocker(uid) or sessions.blocker(uid),
    )
    silent = SilentTasks(
        base.database, base.alerts.raise_alert, base.callers.there, base.settings.stale_after
    )
    supervise("silent-tasks", silent.look, every=silent.every)
    workers.on_limit(partial(_fail_at_work, base, tasks))
    supervise("workspaces", WorkFollower(workers, base.changes).run)
    supervise("branches", BranchFollower(workers, base.changes).run)
    news = TaskNews(
        base.database, base.changes, base.office, sessions, partial(brought_back, workers)
    )
    supervise("task-news", news.run)
    pushes, webhooks = await _open_pushes(base, tasks)
    terminals = Terminals(base.events, installation.audit, trust.org)
    stack.callback(terminals.close)
    reports = TaskReports(tasks, base.database, base.chain)
    blobs = await _open_blobs(base, stack)
    remotes = remote_agents(base, outside)
    await remotes.open()
    remote = remote_work(base, remotes, reports, blobs)
    supervise("remote-tasks", remote.run)
    if tracing.enabled():
        supervise("spans", TaskSpans(base.database, base.changes).run)
    parts = Parts(
        **_by_name(base),
        issuer=issuer,
        workers=workers,
        presence=presence,
        states=states,
        views=WorkerViews(
            workers, states, presence, base.admin, tasks, base.alerts, changed, base.events
        ),
        registry=registry,
        search=search,
        outside=outside,
        sessions=sessions,
        claims=Claims(),
        joining=joining,
        remotes=remotes,
        remote_work=remote,
        tasks=tasks,
        reports=reports,
        assigner=TaskAssigner(tasks, requests, base.directory, search, base.database),
        retries=TaskRetries(tasks, base.database),
        rotation=Rotation(
            trust, installation.host, accounts, renew_edge, sign=partial(_sign_anew, base)
        ),
        blobs=blobs,
        audit=await _open_audit(base, stack),
        terminals=terminals,
        iam=iam,
        grants=grants,
        pushes=pushes,
        webhooks=webhooks,
        gate=Gate(
            iam,
            base.database,
            in_flight.enter,
            in_flight.stream,
            base.callers.called,
            in_flight.limits,
        ),
    )
    acts = Acts(parts, {each.name: each for each in OPERATIONS})
    supervise("acts", Watch(acts, base.changes, topic=APPROVALS).run)
    services = AgentRequests(parts)
    await services.open()
    stack.push_async_callback(services.close)
    installation.opened[trust.org] = parts
    stack.callback(installation.opened.pop, trust.org, None)
    await _open_relay(base, blobs, stack)
    return parts


async def _open_grants(base: Base, stack: AsyncExitStack) -> Grants:
    shared, org = base.installation, base.trust.org

    def elsewhere(name: str) -> Database | None:
        there: Parts | None = shared.opened.get(name)
        return there.database if there is not None else None

    cut = shared.in_flight.cut_grants
    grants = Grants(base.database, org, shared.decisions, elsewhere, cut)
    await grants.refresh()
    stack.callback(shared.decisions.closed.pop, org, None)
    base.background.supervise("grants", grants.run)
    return grants


async def _open_sessions(base: Base, outside: OutsideAgents, iam: LocalIAM) -> Sessions:
    def changed(session: SessionRow, what: str) -> None:
        change = Change("session", 0, session.uid, session.owner, state=what, row=session)
        base.changes.publish([change])

    sessions = Sessions(base.database, outside, iam, base.callers, changed)
    await sessions.open()

    async def expire() -> None:
        if await sessions.expire():
            await base.sweep()

    base.background.supervise("sessions", expire, every=EXPIRY_INTERVAL)
    return sessions


def _open_patience(base: Base, sessions: Sessions, states: WorkerStates) -> None:
    def why(uid: str) -> str:
        if said := sessions.blocker(uid) or states.blocker(uid):
            return said
        if states.there(uid) or base.callers.there(uid):
            return "is there, and has not taken it"
        seen = [at for at in (states.seen_at(uid), base.callers.seen_at(uid)) if at is not None]
        return offline_since(max(seen)) if seen else ""

    waits = Waits(sessions.blocked, sessions.blocker, sessions.kept, why, sessions.told)
    after = base.settings.stale_after
    alert = partial(append_alert, base.bus)
    org = base.trust.org
    patience = Patience(base.database, base.clerk, alert, after, waits, org=org)
    base.background.supervise("patience", Watch(patience, base.changes).run)


async def _open_pushes(base: Base, tasks: OrgTaskService) -> tuple[PushService, WebhookService]:
    key = WebhookKey.derive(base.trust.card_key.secret, base.trust.org)
    shared, org = base.installation, base.trust.org
    tries = shared.metrics.counter(
        "postroom_push_deliveries_total", "Push notifications by how a try ended.", "org", "outcome"
    )
    for outcome in OUTCOMES:
        tries.add(org, outcome, n=0)
    pusher = Pusher(
        base.database,
        base.changes,
        shared.sender,
        key,
        shared.sealer,
        base.alerts.raise_alert,
        count=lambda outcome: tries.add(org, outcome),
        schedule=Schedule((*PAUSES, *parse_pauses(base.settings.webhooks_retry))),
    )
    webhooks = WebhookService(base.database, pusher, base.alerts.raise_alert)
    await webhooks.open()
    base.background.supervise("pushes", pusher.run)
    base.background.supervise("push-lanes", pusher.push)
    base.background.supervise("deliveries", pusher.forget, every=INTERVAL, retry=SELDOM)
    return PushService(tasks, base.database, pusher), webhooks


def _by_name(base: Base) -> dict[str, Any]:
    return {field.name: getattr(base, field.name) for field in fields(base)}


def _open_workers(
    base: Base, issuer: Issuer, changed: Callable[[], None], stack: AsyncExitStack
) -> Workers:
    shared = base.installation
    workers = Workers(
        WorkerParts(
            settings=base.settings,
            database=base.database,
            directory=base.directory,
            admin=base.admin,
            issuer=issuer,
            gateway=OrgGateway(shared.gateway, shared.router, base.settings.org),
            alerts=base.alerts,
            owner=base.owner.uid,
            credentials=partial(shared.credentials.of, base.directory.org),
            canaries=shared.canaries,
            remote=shared.remote,
            tasks=base.background.group,
            changed=changed,
            space=base.space,
        )
    )
    stack.push_async_callback(workers.close)
    return workers


async def _open_edge(
    base: Base, workers: Workers, stack: AsyncExitStack
) -> Callable[[], Awaitable[None]]:
    """Connect to the agents' account and listen for announced cards; returns a function that renews the connection."""
    edge, renew = await connect_edge(base.trust, base.installation.host, stack)
    announcements = Announcements(edge, workers.take_card, base.alerts.raise_alert)
    await announcements.open()
    stack.push_async_callback(announcements.close)
    return renew


async def connect_edge(
    trust: Trust, host: BusHost, stack: AsyncExitStack
) -> tuple[NatsBus, Callable[[], Awaitable[None]]]:
    """The connection to the agents' account, and a function that renews its credential under the present key."""
    credential = trust.edge_credential()
    edge = await connect(host, lambda: credential, "postroom-edge", stack)

    async def renew() -> None:
        nonlocal credential
        credential = trust.edge_credential()
        await edge.renew()

    return edge, renew


async def _fail_at_work(base: Base, tasks: OrgTaskService, worker: str, why: str) -> None:
    """End the current tasks of a worker that was ended for a limit, once all its records are folded."""
    try:
        await base.tasks_folded()
        await tasks.fail_at_work(worker, why)
    except PostroomError as error:
        log.error("the current tasks of %s are still open: %s", worker, error)


async def _sign_anew(base: Base) -> None:
    """Sign all messages with a new key."""
    async with (
        base.installation.backing_up
    ):  # or a backup might have their signatures without the key
        keys = base.trust.rotate_message_keys()
        if base.database.signer is not None:
            base.database.signer.use(keys.secrets)
        await sign_messages(base.settings, base.trust, base.database, base.retention.copy)


async def _open_blobs(base: Base, stack: AsyncExitStack) -> BlobService:
    settings, path = base.settings, base.settings.blobs
    if settings.memory:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="postroom-blobs-")))
    folder = BlobFolder(path, largest=settings.blob_limit, most=settings.blobs_limit)
    blobs = BlobService(base.database, folder, base.tasks_folded)
    await blobs.open()
    base.background.supervise("blobs", blobs.sweep, every=INTERVAL, retry=SELDOM)
    return blobs


async def _open_relay(base: Base, blobs: BlobService, stack: AsyncExitStack) -> None:
    """Carry messages and the blobs that they name to the other organisations, and take theirs."""
    opened = base.installation.opened

    async def give(hashes: Sequence[str], sender: str, org: str) -> None:
        there: Parts | None = opened.get(org)
        if there is None:
            raise EnvironmentFault(f"the organisation {org!r} is not open")
        await blobs.give(hashes, sender, there.blobs)

    base.relay.files = give
    base.background.supervise("relay", base.relay.run)
    base.relay.open()
    stack.callback(base.relay.close)


async def _open_audit(base: Base, stack: AsyncExitStack) -> AuditView:
    """Start the copy of the audit log, its alerts, and the records that only nats-server can give."""
    audit, org = base.installation.audit, base.trust.org
    supervise = base.background.supervise
    copied = Cursor(base.settings.home / "audit-copy.json")
    supervise("audit-copy", AuditCopy(audit, base.bus, org, copied, base.space).run)
    supervise("audit-alarm", Alarm(audit, base.alerts.tell, base.space).run)
    outsiders = Outsiders(base.directory)
    await outsiders.load()
    read = Cursor(base.settings.home / "audit-streams.json")
    supervise("audit-streams", StoredRecords(base.admin, audit, org, outsiders, read).run)
    connections = Connections(await _open_system(base, stack), audit, base.trust, outsiders)
    await connections.open()
    stack.push_async_callback(connections.close)
    view = AuditView(audit, org)
    stack.callback(view.close)
    return view


async def _open_system(base: Base, stack: AsyncExitStack) -> NatsBus:
    credential = base.trust.system_credential()
    return await connect(base.installation.host, lambda: credential, "postroom-audit", stack)


def open_orgs(
    installation: Installation,
    default: Organisation,
    trust: Trust,
    announcement: Callable[[], Announcement],
    rotated: Callable[[], None] = lambda: None,
) -> Orgs:
    """The organisations beside the default one; `Orgs.open` opens them. `rotated` as for `Organisation.open`."""

    async def open_org(settings: Settings, seen: Trust, stack: AsyncExitStack) -> Organisation:
        return await Organisation.open(
            installation, settings, seen, stack, key=default.key, rotated=rotated
        )

    async def delete(core: Credential | None) -> None:
        if core is not None:
            await _delete_log(installation.host, core)
        system = await system_connection(installation.host.address, trust.system_credential())
        try:
            await delete_accounts(system, trust)
        finally:
            await system.close()

    settings, router = installation.settings, installation.router
    return Orgs(settings, trust, router, default, open_org, delete, announcement)


async def _delete_log(host: BusHost, core: Credential) -> None:
    """Delete all streams of an organisation, by its own credential: without its accounts nobody could."""
    connection = await system_connection(host.address, core)
    try:
        log_of_org = JetStream(Mailbox(connection))
        names = (await log_of_org.api("STREAM.NAMES")).get("streams") or ()  # a server lists 1,024
        for name in names:
            await log_of_org.api(f"STREAM.DELETE.{name}")
    except PostroomError as error:
        raise ServerFailed(
            f"the log of a removed organisation could not be deleted: {error}"
        ) from error
    finally:
        await connection.close()
