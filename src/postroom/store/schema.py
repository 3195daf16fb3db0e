"""The tables.

There are three kinds, and on SQLite each has a file:

    ACCOUNTS     who has an address, and by what it is known: one for the installation, each row with its organisation
    BLOBS        uploads and who may read them, and where tasks are pushed: of one organisation
    PROJECTION   folded from the log, one for each organisation; it holds nothing that the log (or a snapshot of it)
                 does not, so `projection.rebuild` may empty it

The first two are the only home of their content. The names of tables are unique over all, so a statement names no file.
It names no organisation either: a session shows the rows of its own, and gives them to what it adds.
"""

from __future__ import annotations

from types import SimpleNamespace

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Float,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy import Integer as AnyInteger

from postroom.errors import EnvironmentFault

REVISION = "0023"
"""The migration that leads to exactly these tables (a test compares them)."""

FIRST_REVISION = "0018"
"""The one with which migrations begin."""

BEFORE_FIRST = "0df9403d"
"""The commit whose start brings older state to `FIRST_REVISION`."""


def check_revision(what: str, revision: str) -> None:
    """Check that this Postroom can read what states `revision`, "" for what states none.

    Raises:
        EnvironmentFault: it is of a newer Postroom, or older than the migrations are.
    """
    if revision > REVISION:
        raise EnvironmentFault(
            f"{what} has version {revision}, this Postroom knows {REVISION}",
            remedy="use the newer Postroom that wrote it",
        )
    if revision < FIRST_REVISION:
        raise EnvironmentFault(
            f"{what} is older than version {FIRST_REVISION}, with which this Postroom begins",
            remedy=f"start Postroom of commit {BEFORE_FIRST} with it once; nothing was changed",
        )


Integer = AnyInteger().with_variant(BigInteger(), "postgresql")
"""Sequences and sizes pass 2^31, where PostgreSQL's INTEGER ends and SQLite's does not."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class OwnOrg(ColumnElement[str]):
    """The organisation of the session; each database has it in another way."""

    inherit_cache = True
    type = Text()


def _of_org() -> Column[str]:
    return Column("org", Text, nullable=False, default=OwnOrg())


# ── accounts: one for the installation ──────────────────────────────────────────────────────────────────────

orgs = Table(
    "orgs",
    metadata,
    Column("org", Text, primary_key=True),
    Column(
        "schema", Text, nullable=False, unique=True
    ),  # or folder: where the rest of its state is
)
"""Whose rows are in the tables of accounts. Which organisations there are says the keyring (`identity.trust`)."""

agents = Table(
    "agents",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("org", Text, nullable=False),
    Column("nick", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("skeleton", Text, nullable=False),
    # Key of the HMAC that makes message ids; stable over restarts of the agent, never shown.
    Column("message_secret", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("retired_at", Float),
    Column("seen_at", Float),  # its last call of the API, to the minute
    Column("owner", Text, nullable=False, server_default=text("''")),  # uid of a person
    Column("owner_email", Text, nullable=False, server_default=text("''")),  # its own word
    Column("grants_only", Boolean, nullable=False, server_default=text("0")),
    Column("joined", Text, nullable=False, server_default=text("''")),  # `invite`, `open`, or not
    Index("ix_agents_nick", "org", "nick", unique=True, sqlite_where=text("retired_at IS NULL")),
    Index(
        "ix_agents_skeleton",
        "org",
        "skeleton",
        unique=True,
        sqlite_where=text("retired_at IS NULL"),
    ),
)

workers = Table(
    "workers",
    metadata,
    Column("uid", Text, ForeignKey("agents.uid"), primary_key=True),
    Column("project", Text, nullable=False),
    Column("template", Text, nullable=False),
    Column("files", Text, nullable=False),  # JSON: name to base64
    Column("overrides", Text, nullable=False),  # JSON: what --set gave
    Column("sandbox", Text, nullable=False),
    Column("level", Text, nullable=False),
    Column("desired", Text, nullable=False),
    Column("token_sha256", Text, nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("begun_at", Float, nullable=False, server_default=text("0")),
    Column("exceeded", Text, nullable=False, server_default=text("''")),
    Column("origin", Text, nullable=False, server_default=text("'{}'")),  # JSON
    _of_org(),
    # JSON: patterns that people have allowed for this worker, each with who and when.
    Column("rules", Text, nullable=False, server_default=text("'[]'")),
)

memberships = Table(
    "memberships",
    metadata,
    Column("uid", Text, ForeignKey("agents.uid"), primary_key=True),
    Column("project", Text, primary_key=True),
    _of_org(),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("uid", Text, ForeignKey("agents.uid"), nullable=False),
    Column("sha256", Text, nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),
    Column("name", Text, nullable=False, server_default=text("''")),
    Column("scopes", Text, nullable=False, server_default=text("''")),  # names, separated by spaces
    Column("expires_at", Float),
    Column("used_at", Float),  # to the minute
    Column("made_by", Text, nullable=False, server_default=text("''")),  # uid
    _of_org(),
    Index("ix_api_keys_uid", "uid"),
)

agent_cards = Table(
    "agent_cards",
    metadata,
    Column("uid", Text, ForeignKey("agents.uid"), primary_key=True),
    Column("card", Text, nullable=False),  # JSON: A2A AgentCard, as it was given
    Column("updated_at", Float, nullable=False),
    _of_org(),
    # JSON: where and how an agent of other people is called; "" for one that calls us (`remote.agents`).
    Column("remote", Text, nullable=False, server_default=text("''")),
)

credentials = Table(
    "credentials",
    metadata,
    Column("user_key", Text, primary_key=True),  # public NKey
    Column("uid", Text, nullable=False),
    Column("expires_at", Float, nullable=False),  # of the last credential under the key
    _of_org(),
    Index("ix_credentials_uid", "uid"),
)

openings = Table(
    "openings",
    metadata,
    Column("org", Text, primary_key=True, default=OwnOrg()),
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("mode", Text, nullable=False),
    Column("opened_at", Float, nullable=False),
)
"""What the operator has opened of the machine to the lesser keys of an organisation (`store.keys`)."""

sessions = Table(
    "sessions",
    metadata,
    Column("uid", Text, ForeignKey("agents.uid"), primary_key=True),
    Column("owner", Text, ForeignKey("agents.uid"), nullable=False),  # a person
    Column("client", Text, nullable=False),
    Column("key", Text, nullable=False),  # by which its client knows it
    Column("folder", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("version", Text, nullable=False),  # of the client
    Column("state", Text, nullable=False),
    Column("state_at", Float, nullable=False),
    Column("heard_at", Float, nullable=False),  # to the minute
    _of_org(),
    Index("ix_sessions_org_owner_client_key", "org", "owner", "client", "key", unique=True),
)
"""The sessions that people have open in their own terminals, until they end."""

grants = Table(
    "grants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("granter", Text, ForeignKey("agents.uid"), nullable=False),  # of this organisation
    Column("grantee", Text, nullable=False),  # uid, of any organisation
    Column("scopes", Text, nullable=False),  # names, separated by spaces
    Column("made_by", Text, nullable=False),  # uid
    Column("made_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    Column("called", Text, nullable=False, server_default=text("''")),  # as its granter named it
    _of_org(),
    Index("ix_grants_granter", "granter", "grantee", unique=True),
    Index("ix_grants_grantee", "grantee", "granter"),
)
"""Whom an agent, or for all of its own a person, has let in; one row a pair, kept when it ends."""

grant_requests = Table(
    "grant_requests",
    metadata,
    Column("id", Text, primary_key=True),
    Column("granter", Text, ForeignKey("agents.uid"), nullable=False),
    Column("grantee", Text, nullable=False),  # who asks
    Column("scopes", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("asked_at", Float, nullable=False),
    Column("state", Text, nullable=False),  # `pending`, `allowed`, `denied`
    Column("answered_by", Text, nullable=False, server_default=text("''")),  # uid
    Column("answered_at", Float),
    _of_org(),
    Index("ix_grant_requests_granter", "granter", "grantee", unique=True),
)
"""Who asks to be let in; one row a pair."""

invites = Table(
    "invites",
    metadata,
    Column("id", Text, primary_key=True),  # in the link
    Column("sha256", Text, nullable=False),  # of the code
    Column("kind", Text, nullable=False),  # of the agent that joins
    Column("scopes", Text, nullable=False),
    Column("uses", Integer, nullable=False),  # that are left
    Column("tries", Integer, nullable=False, server_default=text("0")),  # wrong codes
    Column("made_by", Text, nullable=False),  # uid
    Column("made_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("ended_at", Float),
    _of_org(),
)
"""Who may join by a link and a code; kept when they end."""

admissions = Table(
    "admissions",
    metadata,
    Column("org", Text, primary_key=True, default=OwnOrg()),
    Column("registration", Text, nullable=False),  # `invite`, `open`, `closed`
    Column("grants_only", Boolean, nullable=False),  # its agents, unless they have let somebody in
)
"""How agents come into an organisation; without a row by invite, and all of it write to one another."""

# ── blobs: uploads and their readers; the log adds readers, once, and they stay ──────────────────────────────

blobs = Table(
    "blobs",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("size", Integer, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("touched_at", Float, nullable=False),  # uploaded last
    Column("named", Boolean, nullable=False),  # in a message or a task
    Index("ix_blobs_unnamed", "touched_at", sqlite_where=text("named = 0")),
)

blob_readers = Table(
    "blob_readers",
    metadata,
    Column("sha256", Text, ForeignKey("blobs.sha256", ondelete="CASCADE"), primary_key=True),
    Column("uid", Text, primary_key=True),  # "" for every agent
)

# ── pushes: where the changes of tasks go, and how far each of them has come; in the file of the blobs ──────────

push_configs = Table(
    "push_configs",
    metadata,
    Column("key", Text, primary_key=True),  # of task, owner and id
    Column("id", Text, nullable=False),  # as its owner names it
    Column("task", Text, nullable=False),
    Column("owner", Text, nullable=False),  # uid
    Column("api_key", Text, nullable=False),  # id of the key that it was made with
    Column("url", Text, nullable=False),
    Column("token", Text, nullable=False),  # `sealed`, as `credentials`
    Column("scheme", Text, nullable=False),
    Column("credentials", Text, nullable=False),
    Column("version", Text, nullable=False),  # of A2A
    Column("made_at", Float, nullable=False),
    Column("seq", Integer, nullable=False),  # of TASKS: the changes up to it have their pushes
    Column("final", Boolean, nullable=False),  # the end of the task, too
    Column("sealed", Boolean, nullable=False, server_default=text("0")),
    Index("ix_push_configs_task", "task", "owner", "id"),
    Index("ix_push_configs_open", "key", sqlite_where=text("final = 0")),
    Index("ix_push_configs_owner", "owner", sqlite_where=text("final = 0")),
)

pushes = Table(
    "pushes",
    metadata,
    Column("id", Text, primary_key=True),  # the `webhook-id` of every attempt
    Column("hook", Text, nullable=False),  # the receiver: key of a config, or a stream of a webhook
    Column("about", Text, nullable=False),  # id of the task, the message or the approval
    Column("seq", Integer, nullable=False),  # of TASKS; of a webhook the number in its stream
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", Float),  # of the next attempt; null when there is none
    Column("at", Float),  # of the last attempt
    Column("status", Integer, nullable=False),  # HTTP, of its answer; 0 for none
    Column("reason", Text, nullable=False),  # why it failed
    UniqueConstraint("hook", "seq"),
    Index("ix_pushes_about", "about", "seq"),
    Index("ix_pushes_pending", "hook", "seq", sqlite_where=text("state = 'pending'")),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),  # uid
    Column("api_key", Text, nullable=False),  # id of the key that it was made with
    Column("url", Text, nullable=False),
    Column("events", Text, nullable=False),  # names, with spaces between
    Column("secret", Text, nullable=False),  # sealed
    Column("former", Text, nullable=False),  # sealed; signs, too, until `former_until`
    Column("former_until", Float),
    Column("made_at", Float, nullable=False),
    Column("disabled", Text, nullable=False),  # why nothing goes there; "" while it does
    Index("ix_webhooks_owner", "owner", "id"),
)

webhook_cursors = Table(
    "webhook_cursors",
    metadata,
    Column("stream", Text, primary_key=True),
    Column("seq", Integer, nullable=False),  # up to it all webhooks have their deliveries
)

# ── what readers have put away and how far they have read; in the file of the blobs ───────────────────────────

archived = Table(
    "archived",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),  # of INBOX
    Column("at", Float, nullable=False),
)
"""The messages that their recipients have put away; `messages.archived` says it again, for lists."""

feed_marks = Table(
    "feed_marks",
    metadata,
    Column("reader", Text, primary_key=True),  # uid
    Column("project", Text, primary_key=True),
    Column("seq", Integer, nullable=False),  # of FEED: its posts up to it are read
)

# ── the projection: folded from the log ─────────────────────────────────────────────────────────────────────

messages = Table(
    "messages",
    metadata,
    Column("seq", Integer, primary_key=True),  # of INBOX
    Column("id", Text, nullable=False),
    Column("sender", Text, nullable=False),
    Column("recipient", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("message", Text, nullable=False),  # JSON: A2A Message
    Column("context_id", Text, nullable=False),
    Column("expects_reply", Boolean, nullable=False),
    Column("reply_to", Text, nullable=False),
    Column("requeue_of", Text, nullable=False),
    Column("sent_at", Float, nullable=False),
    Column("stored_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("final", Boolean, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("requests", Boolean, nullable=False, server_default=text("0")),
    Column("subject", Text, nullable=False, server_default=text("''")),
    Column("task", Text, nullable=False, server_default=text("''")),
    Column("signature", Text, nullable=False, server_default=text("''")),  # `store.signing`
    Column("receipt", Integer, nullable=False, server_default=text("0")),  # of RECEIPTS
    UniqueConstraint("sender", "id"),
    Index("ix_messages_receipt", "receipt", sqlite_where=text("receipt > 0")),
    Column("archived", Boolean, nullable=False, server_default=text("0")),
    Index("ix_messages_inbox", "recipient", "archived", "seq"),
    Index("ix_messages_task", "task", "seq", sqlite_where=text("task != ''")),
    Index("ix_messages_id", "id"),
    Index("ix_messages_recipient", "recipient", "seq"),
    Index("ix_messages_pair", "sender", "recipient", "seq"),
    Index("ix_messages_reply_to", "reply_to", "sender", "recipient"),
    Index("ix_messages_context_id", "context_id", "seq", sqlite_where=text("context_id != ''")),
    Index(
        "ix_messages_open_thread",
        *("context_id", "recipient", "final", "state"),
        sqlite_where=text("final = 0 AND context_id != ''"),
    ),
    Index("ix_messages_requeue_of", "requeue_of", sqlite_where=text("requeue_of != ''")),
    # `final` again, or SQLite may take an index over all messages that fits as well.
    Index("ix_messages_open", "recipient", "final", "seq", sqlite_where=text("final = 0")),
    Index("ix_messages_expiry", "expires_at", sqlite_where=text("final = 0 AND expires_at > 0")),
    Index(
        "ix_messages_waiting", "stored_at", sqlite_where=text("final = 0 AND state = 'accepted'")
    ),
)

given_up = Table(
    "given_up",
    metadata,
    Column("sender", Text, primary_key=True),
    Column("id", Text, primary_key=True),  # a digest of sender, recipient and key
    Column("stored_at", Float, nullable=False),
    Column("given_up_at", Float, nullable=False),
    Index("ix_given_up_given_up_at", "given_up_at"),
)
"""The messages that are kept no more, so that none of them is sent again under its key."""

threads = Table(
    "threads",
    metadata,
    Column("uid", Text, primary_key=True),  # of one of its parties
    Column("thread", Text, primary_key=True),
    Column("first", Integer, nullable=False),  # sequences of INBOX
    Column("last", Integer, nullable=False),
    Column("count", Integer, nullable=False),
    Column("others", Text, nullable=False),  # uids, separated by spaces
    Index("ix_threads_last", "uid", "last"),
)
"""The threads of each party: of the messages that it has sent or received."""

early_receipts = Table(
    "early_receipts",
    metadata,
    Column("seq", Integer, primary_key=True),  # of RECEIPTS
    Column("sender", Text, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("recipient", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", Float, nullable=False),
    Index("ix_early_receipts_message", "sender", "message_id"),
)

posts = Table(
    "posts",
    metadata,
    Column("seq", Integer, primary_key=True),  # of FEED
    Column("id", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("sender", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("message", Text, nullable=False),  # JSON: A2A Message
    Column("at", Float, nullable=False),
    UniqueConstraint("sender", "id"),
    Index("ix_posts_project", "project", "seq"),
)

announcements = Table(
    "announcements",
    metadata,
    Column("seq", Integer, primary_key=True),  # of OUTBOX
    Column("id", Text, nullable=False),
    Column("sender", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("message", Text, nullable=False),  # JSON: A2A Message
    Column("at", Float, nullable=False),
    UniqueConstraint("sender", "id"),
    Index("ix_announcements_sender", "sender", "seq"),
)

deadletters = Table(
    "deadletters",
    metadata,
    Column("id", Integer, primary_key=True),  # sequence in DEADLETTER
    # The failed delivery: <stream>-<sequence>-<consumer>.
    Column("origin", Text, nullable=False, unique=True),
    Column("subject", Text, nullable=False),
    Column("sender", Text, nullable=False),
    Column("recipient", Text, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("reason", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("dropped_at", Float),
    Index("ix_deadletters_message", "message_id", "sender"),
)

alerts = Table(
    "alerts",
    metadata,
    Column("id", Integer, primary_key=True),  # sequence in ALERTS of its first record
    Column("seq", Integer, nullable=False),  # of its last one
    Column("sender", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("about", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("count", Integer, nullable=False),
    Column("first_at", Float, nullable=False),
    Column("at", Float, nullable=False),
    Column("ended_at", Float),
    Column("ended", Text, nullable=False),
    Index("ix_alerts_about", "about", "kind"),
    Index("ix_alerts_sender", "sender", "seq"),
)

sdk_events = Table(
    "sdk_events",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # `protocol.events.event_id`
    Column("worker", Text, nullable=False),
    Column("run", Text, nullable=False),  # of its sidecar; "" for an event of the control plane
    Column(
        "number", Integer, nullable=False
    ),  # in the run; the id for an event of the control plane
    Column("kind", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("request", Text, nullable=False),  # id of the approval, "" for none
    Column("tokens_in", Integer, nullable=False),
    Column("tokens_out", Integer, nullable=False),
    Column("cost", Float, nullable=False),  # USD
    Column("event", Text, nullable=False),  # JSON
    Column("at", Float, nullable=False),  # when it was stored
    # Of an approval (`store.approvals`): id of the event that settled it, 0 while it is pending. Else null.
    Column("settled", Integer),
    Column("expires_at", Float),  # of an approval; null for never
    UniqueConstraint("worker", "run", "number"),
    Index("ix_sdk_events_worker", "worker", "id"),
    Index("ix_sdk_events_task", "task", "id", sqlite_where=text("task != ''")),
    Index("ix_sdk_events_request", "request", "id", sqlite_where=text("request != ''")),
    Index(  # holds what is summed, so that no row is read
        "ix_sdk_events_usage",
        *("worker", "tokens_in", "tokens_out", "cost"),
        sqlite_where=text("kind = 'usage'"),
    ),
    Index("ix_sdk_events_approvals", "id", sqlite_where=text("settled IS NOT NULL")),
    Index("ix_sdk_events_pending", "worker", "id", sqlite_where=text("settled = 0")),
)
"""What agents do. Approvals are folded from it, and usage is summed from it: neither has a table of its own."""

a2a_tasks = Table(
    "a2a_tasks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("worker", Text, nullable=False),
    Column("requester", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("requested_seq", Integer, nullable=False),  # of INBOX
    Column("context_id", Text, nullable=False),
    Column("skill", Text, nullable=False),
    Column("stream", Boolean, nullable=False),
    Column("text", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("seq", Integer, nullable=False),  # of TASKS; 0 before the first record
    Column("attempt", Integer, nullable=False),
    Column("lost", Integer, nullable=False),
    Column("runner", Text, nullable=False),
    Column("released", Boolean, nullable=False),
    Column("said", Text, nullable=False),
    # JSON: A2A Task; "" once `snapshot_seq` has it. A row is written anew at each change, so nothing large lies here.
    Column("snapshot", Text, nullable=False),
    Column("final", Boolean, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    # Sequence in TASKS of the last record with a snapshot.
    Column("snapshot_seq", Integer, nullable=False, server_default=text("0")),
    Column("weight", Integer, nullable=False, server_default=text("0")),
    Column("since", Integer, nullable=False, server_default=text("0")),
    Column("door", Text, nullable=False, server_default=text("''")),
    Column("retry_of", Text, nullable=False, server_default=text("''")),
    UniqueConstraint("requested_seq"),
    Index("ix_a2a_tasks_retry_of", "retry_of", sqlite_where=text("retry_of != ''")),
    Index("ix_a2a_tasks_worker", "worker", "requested_seq"),
    Index("ix_a2a_tasks_requester", "requester", "requested_seq"),
    Index("ix_a2a_tasks_open", "worker", "requested_seq", sqlite_where=text("final = 0")),
    Index("ix_a2a_tasks_newest_open", "final", "requested_seq", sqlite_where=text("final = 0")),
    Index("ix_a2a_tasks_untaken", "requested_seq", sqlite_where=text("final = 0 AND seq = 0")),
    Index("ix_a2a_tasks_state", "state", "requested_seq", sqlite_where=text("final = 0")),
)

a2a_task_events = Table(
    "a2a_task_events",
    metadata,
    Column("seq", Integer, primary_key=True),  # of TASKS
    Column("task", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("runner", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("event", Text, nullable=False),  # JSON: A2A StreamResponse
    Column("answer", Text, nullable=False, server_default=text("''")),  # JSON: A2A Message
    # JSON: A2A Task, where this is the last record with one.
    Column("snapshot", Text, nullable=False, server_default=text("''")),
    Index("ix_a2a_task_events_task", "task", "seq"),
)

cursors = Table(
    "cursors",
    metadata,
    Column("projection", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("seq", Integer, nullable=False),
)

ACCOUNTS = (
    *(agents, workers, memberships, api_keys, agent_cards, credentials, openings, sessions),
    *(grants, grant_requests, invites, admissions),
)
"""The tables with a row's organisation, in the order of their foreign keys."""

BLOBS = (
    *(blobs, blob_readers, push_configs, pushes, webhooks, webhook_cursors),
    *(archived, feed_marks),
)
"""The other tables whose origin is here, of one organisation."""

IDENTITY = (*ACCOUNTS, *BLOBS)
"""The tables whose origin is here."""

PROJECTION = (
    messages,
    threads,
    given_up,
    early_receipts,
    posts,
    announcements,
    deadletters,
    alerts,
    sdk_events,
    a2a_tasks,
    a2a_task_events,
    cursors,
)
"""The tables that `rebuild` empties and folds again."""

SET_ASIDE = "~"
"""In the name under which PostgreSQL keeps a removed organisation, and in no other."""

SHARED = "identity"
"""Schema of the tables of accounts with the rows of all organisations, on every connection."""

_everywhere = MetaData()
EVERYWHERE = SimpleNamespace(
    **{
        table.name: Table(
            table.name,
            _everywhere,
            *(Column(column.name, column.type) for column in table.columns),
            schema=SHARED,
        )
        for table in ACCOUNTS
    }
)
"""The same tables over all organisations, only to be read: for finding out whose something is (a key)."""
