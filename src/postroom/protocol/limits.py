"""Every bound that a user or the other end of a wire can meet, with its unit and its reason. Pure.

A docstring reads "UNIT of WHAT: REASON." The first part of this file is also a table in docs/operating.md
(`python -m tools.limits`). A bound that only one module needs, and that nobody meets, stays in that module. What can be
set is in `settings/options.py`; how much a stream holds is in `protocol/streams.py`.
"""

from __future__ import annotations

from postroom_a2a import bounds

_KIB = 1024
_MIB = 1024 * _KIB

# ── Messages ──

MAX_ENVELOPE_BYTES = 512 * _KIB
"""Bytes of a message or a request for a task: the bus takes 1 MiB, and headers and a dead letter's fields must fit."""

INLINE_BYTES = 64 * _KIB
"""Bytes of a text that a command puts into the task itself: what is larger goes as a blob."""

MAX_DEPTH = 64
"""Levels of objects and arrays within one another in a message: each costs the reader of JSON stack."""

MAX_VALUES = 10_000
"""Values of a message or a request's body: objects, arrays, texts, numbers cost far more than their bytes."""

MAX_KEY = 256
"""Characters of an idempotency key: the id of the message is made from it."""

MAX_REF = 1024
"""Characters of an agent's reference, as JSON: the sidecar keeps it until the agent reads the receipt."""

MAX_CONTEXT = bounds.MAX_CONTEXT
"""Characters of a context id: it is in every snapshot of a task."""

MAX_NAMED_BLOBS = 256
"""Blobs of a message or a task that its readers may fetch: further ones are left out."""

MAX_PARTS = 64
"""Parts of a message: a list of mail shows each of them."""

MAX_LINK = 2048
"""Characters of a URL in a part: what is longer most programs refuse, and it stands in lists."""

INBOX_PER_PAIR = 10_000
"""Messages of one sender that wait for one recipient: nobody fills an inbox alone."""

LETTERS_PER_PAIR = 256
"""Letters of one sender to one recipient that are dead: nobody fills more than a quarter of them alone."""

MAX_ALERT = 1000
"""Characters of an alert: it is a line for a person; more is cut off."""

# ── Events ──

MAX_EVENTS = 500
"""Events of one report: they are one record of the log."""

MAX_EVENTS_BYTES = 512 * _KIB
"""Bytes of one report of events: they are one record of the log."""

MAX_EVENT_BYTES = 64 * _KIB
"""Bytes of one event: a longer text in it is cut, and says so."""

MAX_REPORTED_BYTES = 512 * _MIB
"""Bytes of one worker's events in an hour: as many as it may have stored by its connection to the bus."""

MAX_REPORTED_EVENTS = 200_000
"""Events of one worker in ten minutes: those of all workers are folded in one order."""

MAX_RAW = 4096
"""Characters of an agent's own line that are kept beside its event: the event has what counts."""

MAX_PENDING_APPROVALS = 100
"""Approvals of one worker that wait at once: a person answers each; of further ones nobody is asked."""

MAX_EDITED_BYTES = 48 * _KIB
"""Bytes of the input that a person gives in place of the agent's: with its answer it is one event."""

MAX_PATTERN = 250
"""Characters of a pattern that a person adds for a worker: a longer text of an agent may have been cut."""

MAX_PATTERNS = 200
"""Patterns of one worker that people have added: each of them is tried for each use of a tool."""

MIN_PIN = 4
"""Characters of the shortest PIN: the tries are few."""

MAX_PIN = 64
"""Characters of a PIN: each try is hashed."""

PIN_TRIES = 5
"""Tries of a wrong PIN: a person mistypes, a program guesses; then none is taken for a while."""

MAX_SOCKET_MESSAGE = 128 * _KIB
"""Bytes of a message on a WebSocket, in either direction: an event, or what a terminal shows at once."""

# ── Tasks ──

MAX_TASK_BYTES = 384 * _KIB
"""Bytes of a task's snapshot: with the event beside it, it still fits into a message of the bus."""

MAX_TASK_VALUES = 2 * MAX_VALUES
"""Values of a task's snapshot: what was asked for is in it, and what came of that."""

MAX_TEXT_ANSWER = 128 * _KIB
"""Bytes of an answer of an agent with the adapter `text`: in JSON it may need twice its bytes."""

MAX_REASON = 500
"""Characters of the reason why a task is to end: it is a line for a person."""

MAX_LABEL = 200
"""Characters of a skill's id, a tag, an artifact's id or name, a file's name: it stands in lists."""

# ── Agent Cards ──

MAX_CARD_BYTES = bounds.MAX_CARD_BYTES
"""Bytes of an Agent Card: the same in every registry of `a2a-nats/1`."""

MAX_SKILLS = 64
"""Skills of an Agent Card: each is searched for every question."""

MAX_DESCRIPTION = 2000
"""Characters of a description or an example in an Agent Card."""

# ── Lists and waits ──

MAX_PAGE = 500
"""Rows of an answer of the HTTP API: one may hold a whole message."""

MAX_LIST = 200
"""Entries of an answer to an agent: it is one message of the bus."""

MAX_LINES = 10_000
"""Lines of an answer of the audit log: follow it to see more."""

MAX_WAIT = 60.0
"""Seconds of waiting in one request: who wants to wait longer asks again, so that a lost peer shows."""

MAX_ASKED = 600.0
"""Seconds of a question of a session's client to its person: its hook waits meanwhile."""

LONGEST_WAIT = 3600.0
"""Seconds of waiting in one request for a message or a task over the HTTP API, where it ends with its caller."""

MAX_UNREAD = 1000
"""Posts of a feed that are counted as unread: each is counted by itself."""

MAX_WORDS = 16
"""Words of a search for messages: the database looks for each of them."""

# ── An agent's programs and files ──

MAX_RUN = 3600.0
"""Seconds of a command that an agent runs."""

MAX_OUTPUT = _MIB
"""Bytes of each output of a command: what is more is cut off."""

MAX_READ = _MIB
"""Bytes of a file that one request reads."""

MAX_WRITE = 16 * _MIB
"""Bytes of a file that one request writes."""

MAX_ENTRIES = 10_000
"""Entries of a folder that is listed."""

MAX_PATH = 4096
"""Bytes of a path: Linux takes no more (PATH_MAX)."""

MAX_LINE_BYTES = _MIB + 64 * _KIB
"""Bytes of a line that an agent writes: 1 MiB of text and what an adapter puts around it."""

MAX_TURN_LINE_BYTES = 16 * _MIB
"""Bytes of a line of a coding agent: it prints a whole file or the output of a command in one."""

MAX_STATUS = 200
"""Characters of a line that says how a worker stands: it is shown in a list; more is cut off."""

# ── Templates ──

MAX_TEMPLATE_BYTES = 64 * _KIB
"""Bytes of a template."""

MAX_WINDOW = 8
"""Messages of a worker's window: after a crash each of them comes again, alone."""

MAX_ATTEMPTS = 10
"""Attempts of a task that a template may allow: each may use up what an agent costs."""

MAX_CANCEL_GRACE = 300
"""Seconds of grace for a canceled task, in a template: who canceled waits for its end."""

MAX_FILES_BYTES = 4 * _MIB
"""Bytes of all files of a template together: they travel in one request; mount what is larger."""

# ── HTTP ──

MAX_BODY = 2 * _MIB
"""Bytes of the body of a request to the control plane, blobs aside: a message in JSON may need four times its bytes."""

MAX_TEMPLATE_BODY = 8 * _MIB
"""Bytes of the body of a request that starts a worker: a template's files fit in base64."""

MAX_LOCAL_BODY = 2 * MAX_ENVELOPE_BYTES
"""Bytes of the body of a request to an agent's local API, files and blobs aside: a text may need twice its bytes."""

MAX_HEAD = 64 * _KIB
"""Bytes of the head of a request or an answer that passes the gateway, or that Postroom asked for."""

MAX_LOCAL_HEAD = 16 * _KIB
"""Bytes of the head of a request to an agent's local API: as for most servers; each connection holds one."""

MAX_HEADERS = 256
"""Headers of a request or an answer: Postroom looks at all of them."""

MAX_RULES = 256
"""Rules of a template for the way out: Postroom tries each for each request."""

MAX_HOST = 253
"""Characters of the name of a host (RFC 1035)."""

MAX_CREDENTIALS = 1000
"""Credentials of an organisation for the way out."""

MAX_SECRET = 16 * _KIB
"""Bytes of such a credential's secret: it becomes a header."""

# ── Organisations and certificates ──

MAX_ORGS = 50
"""Organisations of a post room: what their streams may hold must add up to what the server may store."""

MAX_PROJECTS = 256
"""Projects of one agent: with the longest names its credential still fits a line of the bus."""

MAX_API_KEYS = 100
"""Keys of one agent: each of them is one more that may be lost."""

MAX_CODE_TRIES = 20
"""Tries of a wrong code for one invite: somebody guesses, and it counts no more."""

MAX_INVITE_USES = 1000
"""Uses of an invite: what a code that got out lets in."""

MAX_STRANGERS = 10_000
"""Agents of an organisation that came by open registration: each has an inbox, and nobody has asked for them."""

MAX_EMAIL = 254
"""Characters of an e-mail address (RFC 5321)."""

MAX_SESSIONS = 500
"""Sessions of one person in terminals: each has an address and an inbox."""

MAX_GRANTS = 1000
"""Grants of one agent: each new one reads them."""

MAX_ASKED_OF = 200
"""Requests of others to be let in by one agent: further ones are not kept, and nobody is told."""

MAX_SESSION_KEY = 256
"""Characters of the key by which a client knows a session: those of today have at most 40."""

MAX_HOW = 60
"""Characters of how a message was delivered: it stands in the line of a receipt."""

MAX_CERTIFICATE_DAYS = 397
"""Days of a certificate's validity: browsers take no more."""

# ── Pushes ──

MAX_PUSH_CONFIGS = 10
"""Configs of one caller for the push notifications of one task: every change goes to each of them."""

MAX_OPEN_PUSH_CONFIGS = 10_000
"""Configs of one caller for the push notifications of open tasks: each is kept in memory."""

MAX_WEBHOOKS = 20
"""Webhooks of one agent: everything that it wants to be told goes to each of them."""

# ── Between our own processes; no table shows these ──

TASK_DEPTH = MAX_DEPTH + 8
"""Levels of a record of a task: what a message asked for is a part of it."""

MAX_RECORD_VALUES = 100_000
"""Values of a record about a task, or of events: what earlier versions have stored is still read."""

MAX_TASK_EVENT_BYTES = MAX_TASK_BYTES + 4096
"""Bytes of a task's event: what it brings is in the snapshot, too."""

MAX_PAYLOAD = _MIB
"""Bytes of a message of the bus: the largest record of a stream with its headers."""

MAX_CONTROL_LINE = 32 * _KIB
"""Bytes of a control line of the bus, CONNECT among them: a credential with many projects does not fit 4 KiB."""

MAX_AGENT_ANSWER = 900 * _KIB
"""Bytes of an answer of the control plane to an agent: it has to fit a message of the bus."""

MAX_PAGE_BYTES = 768 * _KIB
"""Bytes of the tasks in an answer to ListTasks: it has to fit a message of the bus."""

MAX_CARDS_BYTES = 512 * _KIB
"""Bytes of the cards in an answer to a search: it has to fit a message of the bus."""

MAX_DERIVED_KEY = 1000
"""Characters of a key that a sidecar makes: of a sender, a message's id, and a digest."""

MAX_SHOWN_TEXT = 2000
"""Characters of a task's text that a list shows, or an answer that would be too long otherwise."""

MAX_SAID = 1000
"""Characters of what was said with a state of a task that lists show."""

MAX_DETAIL = 300
"""Characters of the line that says how a task stands, and of a question that an alert shows."""

SHORT_ID = 8
"""Characters of an id that people are shown: the server finds the one that is meant."""

MAX_SUBJECT = 512
"""Bytes of a subject that a worker may use, and that a record of the audit log keeps."""
