"""The tables with which migrations begin, as SQLite has them: PostgreSQL's never had a migration before."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = None

TABLES = """
CREATE TABLE a2a_task_events (seq INTEGER NOT NULL, task TEXT NOT NULL, worker TEXT NOT NULL,
    state TEXT NOT NULL, attempt INTEGER NOT NULL, runner TEXT NOT NULL, at FLOAT NOT NULL, event
    TEXT NOT NULL, answer TEXT DEFAULT '' NOT NULL, snapshot TEXT DEFAULT '' NOT NULL, CONSTRAINT
    pk_a2a_task_events PRIMARY KEY (seq));
CREATE INDEX ix_a2a_task_events_task ON a2a_task_events (task, seq);
CREATE TABLE a2a_tasks (id TEXT NOT NULL, worker TEXT NOT NULL, requester TEXT NOT NULL, request
    TEXT NOT NULL, requested_seq INTEGER NOT NULL, context_id TEXT NOT NULL, skill TEXT NOT NULL,
    stream BOOLEAN NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL, seq INTEGER NOT NULL, attempt
    INTEGER NOT NULL, lost INTEGER NOT NULL, runner TEXT NOT NULL, released BOOLEAN NOT NULL, said
    TEXT NOT NULL, snapshot TEXT NOT NULL, final BOOLEAN NOT NULL, created_at FLOAT NOT NULL,
    updated_at FLOAT NOT NULL, snapshot_seq INTEGER DEFAULT 0 NOT NULL, weight INTEGER DEFAULT 0 NOT
    NULL, since INTEGER DEFAULT 0 NOT NULL, door TEXT DEFAULT '' NOT NULL, retry_of TEXT DEFAULT ''
    NOT NULL, CONSTRAINT pk_a2a_tasks PRIMARY KEY (id), CONSTRAINT uq_a2a_tasks_requested_seq UNIQUE
    (requested_seq));
CREATE INDEX ix_a2a_tasks_newest_open ON a2a_tasks (final, requested_seq) WHERE final = 0;
CREATE INDEX ix_a2a_tasks_open ON a2a_tasks (worker, requested_seq) WHERE final = 0;
CREATE INDEX ix_a2a_tasks_requester ON a2a_tasks (requester, requested_seq);
CREATE INDEX ix_a2a_tasks_retry_of ON a2a_tasks (retry_of) WHERE retry_of != '';
CREATE INDEX ix_a2a_tasks_state ON a2a_tasks (state, requested_seq) WHERE final = 0;
CREATE INDEX ix_a2a_tasks_untaken ON a2a_tasks (requested_seq) WHERE final = 0 AND seq = 0;
CREATE INDEX ix_a2a_tasks_worker ON a2a_tasks (worker, requested_seq);
CREATE TABLE agents (uid TEXT NOT NULL, org TEXT NOT NULL, nick TEXT NOT NULL, kind TEXT NOT
    NULL, skeleton TEXT NOT NULL, message_secret BLOB NOT NULL, created_at FLOAT NOT NULL,
    retired_at FLOAT, seen_at FLOAT, CONSTRAINT pk_agents PRIMARY KEY (uid));
CREATE UNIQUE INDEX ix_agents_nick ON agents (org, nick) WHERE retired_at IS NULL;
CREATE UNIQUE INDEX ix_agents_skeleton ON agents (org, skeleton) WHERE retired_at IS NULL;
CREATE TABLE alerts (id INTEGER NOT NULL, seq INTEGER NOT NULL, sender TEXT NOT NULL, kind TEXT
    NOT NULL, about TEXT NOT NULL, who TEXT NOT NULL, text TEXT NOT NULL, count INTEGER NOT NULL,
    first_at FLOAT NOT NULL, at FLOAT NOT NULL, ended_at FLOAT, ended TEXT NOT NULL, CONSTRAINT
    pk_alerts PRIMARY KEY (id));
CREATE INDEX ix_alerts_about ON alerts (about, kind);
CREATE INDEX ix_alerts_sender ON alerts (sender, seq);
CREATE TABLE announcements (seq INTEGER NOT NULL, id TEXT NOT NULL, sender TEXT NOT NULL, text
    TEXT NOT NULL, message TEXT NOT NULL, at FLOAT NOT NULL, CONSTRAINT pk_announcements PRIMARY KEY
    (seq), CONSTRAINT uq_announcements_sender_id UNIQUE (sender, id));
CREATE INDEX ix_announcements_sender ON announcements (sender, seq);
CREATE TABLE blobs (sha256 TEXT NOT NULL, size INTEGER NOT NULL, media_type TEXT NOT NULL,
    created_at FLOAT NOT NULL, touched_at FLOAT NOT NULL, named BOOLEAN NOT NULL, CONSTRAINT
    pk_blobs PRIMARY KEY (sha256));
CREATE INDEX ix_blobs_unnamed ON blobs (touched_at) WHERE named = 0;
CREATE TABLE credentials (user_key TEXT NOT NULL, uid TEXT NOT NULL, expires_at FLOAT NOT NULL,
    org TEXT NOT NULL, CONSTRAINT pk_credentials PRIMARY KEY (user_key));
CREATE INDEX ix_credentials_uid ON credentials (uid);
CREATE TABLE cursors (projection TEXT NOT NULL, stream TEXT NOT NULL, seq INTEGER NOT NULL,
    CONSTRAINT pk_cursors PRIMARY KEY (projection, stream));
CREATE TABLE deadletters (id INTEGER NOT NULL, origin TEXT NOT NULL, subject TEXT NOT NULL,
    sender TEXT NOT NULL, recipient TEXT NOT NULL, message_id TEXT NOT NULL, payload BLOB NOT NULL,
    reason TEXT NOT NULL, attempts INTEGER NOT NULL, at FLOAT NOT NULL, dropped_at FLOAT, CONSTRAINT
    pk_deadletters PRIMARY KEY (id), CONSTRAINT uq_deadletters_origin UNIQUE (origin));
CREATE INDEX ix_deadletters_message ON deadletters (message_id, sender);
CREATE TABLE early_receipts (seq INTEGER NOT NULL, sender TEXT NOT NULL, message_id TEXT NOT
    NULL, recipient TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, at FLOAT NOT NULL,
    CONSTRAINT pk_early_receipts PRIMARY KEY (seq));
CREATE INDEX ix_early_receipts_message ON early_receipts (sender, message_id);
CREATE TABLE messages (seq INTEGER NOT NULL, id TEXT NOT NULL, sender TEXT NOT NULL, recipient
    TEXT NOT NULL, text TEXT NOT NULL, message TEXT NOT NULL, context_id TEXT NOT NULL,
    expects_reply BOOLEAN NOT NULL, reply_to TEXT NOT NULL, requeue_of TEXT NOT NULL, sent_at FLOAT
    NOT NULL, stored_at FLOAT NOT NULL, expires_at FLOAT NOT NULL, state TEXT NOT NULL, reason TEXT
    NOT NULL, final BOOLEAN NOT NULL, updated_at FLOAT NOT NULL, requests BOOLEAN DEFAULT 0 NOT
    NULL, subject TEXT DEFAULT '' NOT NULL, task TEXT DEFAULT '' NOT NULL, CONSTRAINT pk_messages
    PRIMARY KEY (seq), CONSTRAINT uq_messages_sender_id UNIQUE (sender, id));
CREATE INDEX ix_messages_context_id ON messages (context_id, seq) WHERE context_id != '';
CREATE INDEX ix_messages_expiry ON messages (expires_at) WHERE final = 0 AND expires_at > 0;
CREATE INDEX ix_messages_id ON messages (id);
CREATE INDEX ix_messages_open ON messages (recipient, final, seq) WHERE final = 0;
CREATE INDEX ix_messages_pair ON messages (sender, recipient, seq);
CREATE INDEX ix_messages_recipient ON messages (recipient, seq);
CREATE INDEX ix_messages_reply_to ON messages (reply_to, sender, recipient);
CREATE INDEX ix_messages_requeue_of ON messages (requeue_of) WHERE requeue_of != '';
CREATE INDEX ix_messages_task ON messages (task, seq) WHERE task != '';
CREATE INDEX ix_messages_waiting ON messages (stored_at) WHERE final = 0 AND state = 'accepted';
CREATE TABLE openings (org TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, mode TEXT NOT
    NULL, opened_at FLOAT NOT NULL, CONSTRAINT pk_openings PRIMARY KEY (org, kind, name));
CREATE TABLE orgs (org TEXT NOT NULL, schema TEXT NOT NULL, CONSTRAINT pk_orgs PRIMARY KEY
    (org), CONSTRAINT uq_orgs_schema UNIQUE (schema));
CREATE TABLE posts (seq INTEGER NOT NULL, id TEXT NOT NULL, project TEXT NOT NULL, sender TEXT
    NOT NULL, text TEXT NOT NULL, message TEXT NOT NULL, at FLOAT NOT NULL, CONSTRAINT pk_posts
    PRIMARY KEY (seq), CONSTRAINT uq_posts_sender_id UNIQUE (sender, id));
CREATE INDEX ix_posts_project ON posts (project, seq);
CREATE TABLE push_configs ("key" TEXT NOT NULL, id TEXT NOT NULL, task TEXT NOT NULL, owner TEXT
    NOT NULL, api_key TEXT NOT NULL, url TEXT NOT NULL, token TEXT NOT NULL, scheme TEXT NOT NULL,
    credentials TEXT NOT NULL, version TEXT NOT NULL, made_at FLOAT NOT NULL, seq INTEGER NOT NULL,
    final BOOLEAN NOT NULL, CONSTRAINT pk_push_configs PRIMARY KEY ("key"));
CREATE INDEX ix_push_configs_open ON push_configs ("key") WHERE final = 0;
CREATE INDEX ix_push_configs_owner ON push_configs (owner) WHERE final = 0;
CREATE INDEX ix_push_configs_task ON push_configs (task, owner, id);
CREATE TABLE pushes (id TEXT NOT NULL, hook TEXT NOT NULL, about TEXT NOT NULL, seq INTEGER NOT
    NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL, next_at FLOAT, at FLOAT, status INTEGER
    NOT NULL, reason TEXT NOT NULL, CONSTRAINT pk_pushes PRIMARY KEY (id), CONSTRAINT
    uq_pushes_hook_seq UNIQUE (hook, seq));
CREATE INDEX ix_pushes_about ON pushes (about, seq);
CREATE INDEX ix_pushes_pending ON pushes (hook, seq) WHERE state = 'pending';
CREATE TABLE sdk_events (id INTEGER NOT NULL, worker TEXT NOT NULL, run TEXT NOT NULL, number
    INTEGER NOT NULL, kind TEXT NOT NULL, task TEXT NOT NULL, message TEXT NOT NULL, request TEXT
    NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, cost FLOAT NOT NULL, event
    TEXT NOT NULL, at FLOAT NOT NULL, settled INTEGER, expires_at FLOAT, CONSTRAINT pk_sdk_events
    PRIMARY KEY (id), CONSTRAINT uq_sdk_events_worker_run_number UNIQUE (worker, run, number));
CREATE INDEX ix_sdk_events_approvals ON sdk_events (id) WHERE settled IS NOT NULL;
CREATE INDEX ix_sdk_events_pending ON sdk_events (worker, id) WHERE settled = 0;
CREATE INDEX ix_sdk_events_request ON sdk_events (request, id) WHERE request != '';
CREATE INDEX ix_sdk_events_task ON sdk_events (task, id) WHERE task != '';
CREATE INDEX ix_sdk_events_usage ON sdk_events (worker, tokens_in, tokens_out, cost) WHERE kind
    = 'usage';
CREATE INDEX ix_sdk_events_worker ON sdk_events (worker, id);
CREATE TABLE agent_cards (uid TEXT NOT NULL, card TEXT NOT NULL, updated_at FLOAT NOT NULL, org
    TEXT NOT NULL, remote TEXT DEFAULT '' NOT NULL, CONSTRAINT pk_agent_cards PRIMARY KEY (uid),
    CONSTRAINT fk_agent_cards_uid FOREIGN KEY(uid) REFERENCES agents (uid));
CREATE TABLE api_keys (id TEXT NOT NULL, uid TEXT NOT NULL, sha256 TEXT NOT NULL, created_at
    FLOAT NOT NULL, revoked_at FLOAT, name TEXT DEFAULT '' NOT NULL, scopes TEXT DEFAULT '' NOT
    NULL, expires_at FLOAT, used_at FLOAT, made_by TEXT DEFAULT '' NOT NULL, org TEXT NOT NULL,
    CONSTRAINT pk_api_keys PRIMARY KEY (id), CONSTRAINT fk_api_keys_uid FOREIGN KEY(uid) REFERENCES
    agents (uid), CONSTRAINT uq_api_keys_sha256 UNIQUE (sha256));
CREATE INDEX ix_api_keys_uid ON api_keys (uid);
CREATE TABLE blob_readers (sha256 TEXT NOT NULL, uid TEXT NOT NULL, CONSTRAINT pk_blob_readers
    PRIMARY KEY (sha256, uid), CONSTRAINT fk_blob_readers_sha256 FOREIGN KEY(sha256) REFERENCES
    blobs (sha256) ON DELETE CASCADE);
CREATE TABLE memberships (uid TEXT NOT NULL, project TEXT NOT NULL, org TEXT NOT NULL,
    CONSTRAINT pk_memberships PRIMARY KEY (uid, project), CONSTRAINT fk_memberships_uid FOREIGN
    KEY(uid) REFERENCES agents (uid));
CREATE TABLE workers (uid TEXT NOT NULL, project TEXT NOT NULL, template TEXT NOT NULL, files
    TEXT NOT NULL, overrides TEXT NOT NULL, sandbox TEXT NOT NULL, level TEXT NOT NULL, desired TEXT
    NOT NULL, token_sha256 TEXT NOT NULL, created_at FLOAT NOT NULL, begun_at FLOAT DEFAULT 0 NOT
    NULL, exceeded TEXT DEFAULT '' NOT NULL, origin TEXT DEFAULT '{}' NOT NULL, org TEXT NOT NULL,
    rules TEXT DEFAULT '[]' NOT NULL, CONSTRAINT pk_workers PRIMARY KEY (uid), CONSTRAINT
    fk_workers_uid FOREIGN KEY(uid) REFERENCES agents (uid), CONSTRAINT uq_workers_token_sha256
    UNIQUE (token_sha256))
"""


def upgrade() -> None:
    """Make the tables in an empty file."""
    for statement in TABLES.split(";"):
        op.execute(statement)
