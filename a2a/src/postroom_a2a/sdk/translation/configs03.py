"""Reads what a client of A2A 0.3 configures as protobuf: how a message is answered, and push notifications."""

from __future__ import annotations

from typing import Any

from a2a import types
from postroom_a2a.sdk.translation.values import (
    MalformedObject,
    Record,
    count,
    flag,
    record,
    text,
    texts,
    within,
)


def read_push_config(said: Record) -> types.TaskPushNotificationConfig:
    """Where and how to push. Of several authentication schemes 1.0 keeps the first."""
    return types.TaskPushNotificationConfig(
        id=text(said, "id"),
        url=text(said, "url"),
        token=text(said, "token"),
        authentication=within(said, "authentication", _read_authentication),
    )


def _read_authentication(said: Record) -> types.AuthenticationInfo:
    schemes = texts(said, "schemes")
    return types.AuthenticationInfo(
        scheme=schemes[0] if schemes else "", credentials=text(said, "credentials")
    )


def read_task_push_config(value: Any) -> types.TaskPushNotificationConfig:
    """Where and how to push, and the task that it is about."""
    said = record(value)
    config = within(said, "pushNotificationConfig", read_push_config)
    if config is None:
        raise MalformedObject("pushNotificationConfig", "is required")
    config.task_id = text(said, "taskId")
    return config


def read_configuration(said: Record) -> types.SendMessageConfiguration:
    """How to answer a message; a history of length 0 is the whole one in 0.3."""
    return types.SendMessageConfiguration(
        accepted_output_modes=texts(said, "acceptedOutputModes"),
        task_push_notification_config=within(said, "pushNotificationConfig", read_push_config),
        history_length=count(said, "historyLength") or None,
        return_immediately=flag(said, "blocking") is False,
    )
