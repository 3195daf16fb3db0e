"""The operations that need no agent: settings of push notifications, and the extended card."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

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
from google.protobuf.message import Message

from postroom_a2a.sdk.handling.required import require

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
