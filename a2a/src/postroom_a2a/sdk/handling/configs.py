"""The operations that need no agent: settings of push notifications, and the extended card; required fields of all.

The SDK walks the descriptors of a message at each call to find required fields (A2A 1.0, section 5.7), which costs more
than the rest of a call. Here a check is compiled once per type; only a message that fails it goes to the SDK, which
names the missing field.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from a2a.types import (
    AgentCard,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import (
    ExtendedAgentCardNotConfiguredError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.proto_utils import validate_proto_required_fields
from google.api.field_behavior_pb2 import FieldBehavior, field_behavior
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.server.request_handlers.request_handler import RequestHandler as _RequestHandler
    from a2a.server.tasks import PushNotificationConfigStore, TaskStore
else:
    _RequestHandler = object  # importing it costs half a second of CPU time


CardModifier = Callable[[AgentCard, "ServerCallContext"], Awaitable[AgentCard]]
UrlCheck = Callable[[str], Awaitable[bool]]


class ConfigOperations(_RequestHandler):
    """The operations on push notification settings and the extended card."""

    def __init__(
        self,
        agent_card: AgentCard,
        store: TaskStore,
        *,
        push_config_store: PushNotificationConfigStore | None,
        push_url_validator: UrlCheck | None,
        extended_agent_card: AgentCard | None,
        extended_card_modifier: CardModifier | None,
    ) -> None:
        self._card = agent_card
        self._tasks = store
        self._configs = push_config_store
        self._url_check = push_url_validator
        self._extended_card = extended_agent_card
        self._modify_card = extended_card_modifier

    def _check_streaming(self) -> None:
        if not self._card.capabilities.streaming:
            raise UnsupportedOperationError("Streaming is not supported by the agent")

    async def _configure(
        self, task_id: str, config: TaskPushNotificationConfig, context: ServerCallContext
    ) -> None:
        """Store the settings in a message, if there is a store for them."""
        if self._configs is not None:
            await self._check_url(config.url)
            await self._configs.set_info(task_id, config, context)

    async def _check_url(self, url: str) -> None:
        if self._url_check is not None and not await self._url_check(url):
            raise InvalidParamsError("Invalid push notification URL")

    async def _configs_for(
        self, params: Message, task_id: str, context: ServerCallContext
    ) -> PushNotificationConfigStore:
        """The store of the settings, for a caller who may see the task."""
        require(params)
        if not self._card.capabilities.push_notifications:
            raise PushNotificationNotSupportedError(
                "Push notifications are not supported by the agent"
            )
        if self._configs is None:
            raise PushNotificationNotSupportedError
        if await self._tasks.get(task_id, context) is None:
            raise TaskNotFoundError
        return self._configs

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Push the changes of a task to a URL from now on."""
        configs = await self._configs_for(params, params.task_id, context)
        await self._check_url(params.url)
        stored = await configs.set_info(params.task_id, params, context)
        if stored is not None:
            return stored
        from a2a.server.tasks.push_notification_config_store import (
            normalize_push_notification_config,
        )

        return normalize_push_notification_config(params.task_id, params)

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """One setting of a task."""
        configs = await self._configs_for(params, params.task_id, context)
        for config in await configs.get_info(params.task_id, context) or ():
            if config.id == params.id:
                return config
        raise TaskNotFoundError

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """All settings of a task."""
        configs = await self._configs_for(params, params.task_id, context)
        return ListTaskPushNotificationConfigsResponse(
            configs=await configs.get_info(params.task_id, context)
        )

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Push to that URL no more."""
        configs = await self._configs_for(params, params.task_id, context)
        await configs.delete_info(params.task_id, context, params.id)

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """The card for callers who may see more."""
        require(params)
        if not self._card.capabilities.extended_agent_card:
            raise UnsupportedOperationError(
                "The agent does not support authenticated extended cards"
            )
        if self._extended_card is None:
            raise ExtendedAgentCardNotConfiguredError
        if self._modify_card is not None:
            return await self._modify_card(self._extended_card, context)
        return self._extended_card


# ── required fields ───────────────────────────────────────────────────────────────────────────────


Check = Callable[[Any], bool]

_checks: dict[Any, Check] = {}


def require(message: Any) -> None:
    """Check that `message`, and each message in it, has every required field.

    Raises:
        InvalidParamsError: as the SDK's `validate_proto_required_fields` raises it.
    """
    kind = message.DESCRIPTOR
    check = _checks.get(kind)
    if check is None:
        check = _checks[kind] = _compiled(kind, {})
    if not check(message):
        validate_proto_required_fields(message)


def _compiled(kind: Descriptor, made: dict[Descriptor, Check]) -> Check:
    """The check of a type; `made` has the checks of the types around it, for a type that contains itself."""
    values: list[str] = []  # scalars, and repeated fields that must not be empty
    present: list[str] = []
    one: list[tuple[str, Check]] = []
    many: list[tuple[str, Check]] = []
    mapped: list[tuple[str, Check]] = []

    def check(message: Any) -> bool:
        for name in values:
            if not getattr(message, name):
                return False
        for name in present:
            if not message.HasField(name):
                return False
        for name, inner in one:
            if message.HasField(name) and not inner(getattr(message, name)):
                return False
        for name, inner in many:
            for item in getattr(message, name):
                if not inner(item):
                    return False
        for name, inner in mapped:
            for item in getattr(message, name).values():
                if not inner(item):
                    return False
        return True

    made[kind] = check
    for field in kind.fields:
        if _is_required(field):
            (present if field.has_presence else values).append(field.name)
        inner = field.message_type
        if inner is None or not _has_required(inner, set()):
            continue
        if not field.is_repeated:
            one.append((field.name, made.get(inner) or _compiled(inner, made)))
        elif inner.GetOptions().map_entry:
            value = inner.fields_by_name["value"].message_type
            mapped.append((field.name, made.get(value) or _compiled(value, made)))
        else:
            many.append((field.name, made.get(inner) or _compiled(inner, made)))
    return check


def _has_required(kind: Descriptor, seen: set[Descriptor]) -> bool:
    """Whether a message of this type can lack a field; most cannot, and need no check."""
    if kind in seen:
        return False
    seen.add(kind)
    return any(
        _is_required(field)
        or (field.message_type is not None and _has_required(field.message_type, seen))
        for field in kind.fields
    )


def _is_required(field: FieldDescriptor) -> bool:
    return FieldBehavior.REQUIRED in field.GetOptions().Extensions[field_behavior]
