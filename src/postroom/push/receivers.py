"""Where deliveries go: the config of a task, or one stream of a webhook; and one request there.

Each has a lane of its own, in which deliveries go one after the other. The streams of a webhook do not wait for each
other, since their numbers say nothing about which came first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from postroom.store.database import Store
from postroom.store.pushes import ConfigRow
from postroom.store.webhooks import HookRow
from postroom.webhooks.lanes import Lane
from postroom.webhooks.sender import Target

STREAMS = ("INBOX", "RECEIPTS", "TASKS", "EVENTS")
"""The streams of the log that webhooks are told of."""

NOT_KEPT = "what it was about is no longer kept"
SECRET_LOST = "its secret is lost with the key that it was sealed under"


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver.

    Attributes:
        key: of its deliveries (`PushRow.hook`).
        about: of its alert: the key of the config, the id of the webhook.
        api_key: id of the API key that it was made with.
    """

    key: str
    about: str
    owner: str
    api_key: str
    url: str
    row: ConfigRow | HookRow

    @classmethod
    def of(cls, config: ConfigRow) -> Receiver:
        """The receiver that a config is."""
        return cls(config.key, config.key, config.owner, config.api_key, config.url, config)

    @classmethod
    def in_stream(cls, hook: HookRow, stream: str) -> Receiver:
        """The receiver that a webhook is for what one stream says."""
        key = f"{hook.id}/{stream}"
        return cls(key, hook.id, hook.owner, hook.api_key, hook.url, hook)

    @classmethod
    def find(cls, store: Store, key: str) -> Receiver | None:
        """The receiver of deliveries under that key."""
        webhook, _, stream = key.partition("/")
        if not stream:
            config = store.pushes.config(key)
            return None if config is None else cls.of(config)
        hook = store.webhooks.get(webhook)
        return None if hook is None else cls.in_stream(hook, stream)

    @property
    def lane(self) -> Lane:
        """Its lane."""
        return Lane(self.key, self.owner, Target.parse(self.url).host)


def lanes_of(webhook: str) -> list[str]:
    """The keys of the deliveries to a webhook."""
    return [f"{webhook}/{stream}" for stream in STREAMS]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One request to a receiver, signed.

    Attributes:
        fault: why there is none, "" where there is.
        drop: the fault is of this delivery alone, not of its receiver.
    """

    headers: list[tuple[str, str]] = field(default_factory=list, repr=False)
    body: bytes = b""
    fault: str = ""
    drop: bool = False
