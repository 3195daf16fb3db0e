"""The state of an organisation, by noun: what rules and services ask, whichever database holds it."""

from __future__ import annotations

from postroom.store.activity import ActivityStore
from postroom.store.agents import AgentStore
from postroom.store.alerts import AlertStore
from postroom.store.announcements import AnnouncementStore
from postroom.store.approvals import ApprovalStore
from postroom.store.blobs import BlobStore
from postroom.store.cards import CardStore
from postroom.store.credentials import CredentialStore
from postroom.store.events import EventStore
from postroom.store.keys import KeyStore
from postroom.store.messages import MessageStore
from postroom.store.openings import OpeningStore
from postroom.store.pending import PendingStore
from postroom.store.ports import Tasks, TaskTables
from postroom.store.pushes import PushStore
from postroom.store.records import RecordStore
from postroom.store.session import Session
from postroom.store.tasks import TaskStore
from postroom.store.workers import WorkerStore


class Store:
    """One transaction or one consistent view, as the runner gives it to a piece of work (`store.database`).

    Attributes:
        agents, blobs, cards, credentials, keys, openings, pushes, workers: identity, whose origin is here.
        alerts, announcements, approvals, events, messages, pending, records: folded from the log.
        tasks: folded from the log, as a projection of their own; perhaps in another database.
        task_tables: all rows of that database, None where tasks lie in SQL.
        activity: what happens in a project, read from several of them.
    """

    def __init__(
        self,
        session: Session,
        tasks: Tasks | None = None,
        task_tables: TaskTables | None = None,
    ) -> None:
        self.session = session
        self.task_tables = task_tables
        self.activity = ActivityStore(session)
        self.agents = AgentStore(session)
        self.blobs = BlobStore(session)
        self.cards = CardStore(session)
        self.credentials = CredentialStore(session)
        self.keys = KeyStore(session)
        self.openings = OpeningStore(session)
        self.pushes = PushStore(session)
        self.workers = WorkerStore(session)
        self.alerts = AlertStore(session)
        self.announcements = AnnouncementStore(session)
        self.approvals = ApprovalStore(session)
        self.events = EventStore(session)
        self.messages = MessageStore(session)
        self.pending = PendingStore(session)
        self.records = RecordStore(session)
        self.tasks: Tasks = tasks or TaskStore(session)
        # INBOX is in both projections: a message, and the task that it may request.
        mail, own = self.records.cursors, self.tasks.cursors
        self._cursors = {"INBOX": (mail, own), "TASKS": (own,)}
        self._mail = (mail,)

    def cursor(self, stream: str) -> int:
        """Sequence up to which every projection of `stream` has folded it, 0 before the first record."""
        return min(cursor.get(stream) for cursor in self._cursors.get(stream, self._mail))

    def set_cursor(self, stream: str, seq: int) -> None:
        """Store the sequence up to which `stream` is folded."""
        for cursor in self._cursors.get(stream, self._mail):
            cursor.set(stream, seq)
