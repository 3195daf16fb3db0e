"""What a client of A2A 0.3 configures, from and to protobuf: how a message is answered, and push notifications."""

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


def write_push_config(config: types.TaskPushNotificationConfig) -> Record:
    """Where and how to push, without the task that it is about."""
    written: Record = {"url": config.url}
    if config.token:
        written["token"] = config.token
    if config.id:
        written["id"] = config.id
    if config.HasField("authentication"):
        scheme, credentials = config.authentication.scheme, config.authentication.credentials
        authentication: Record = {"schemes": [scheme] if scheme else []}
        if credentials:
            authentication["credentials"] = credentials
        written["authentication"] = authentication
    return written


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


def write_task_push_config(config: types.TaskPushNotificationConfig) -> Record:
    """Where and how to push, and the task that it is about."""
    return {"taskId": config.task_id, "pushNotificationConfig": write_push_config(config)}


def read_task_push_config(value: Any) -> types.TaskPushNotificationConfig:
    """Where and how to push, and the task that it is about."""
    said = record(value)
    config = within(said, "pushNotificationConfig", read_push_config)
    if config is None:
        raise MalformedObject("pushNotificationConfig", "is required")
    config.task_id = text(said, "taskId")
    return config


def write_configuration(configuration: types.SendMessageConfiguration) -> Record:
    """How to answer a message."""
    written: Record = {}
    if configuration.accepted_output_modes:
        written["acceptedOutputModes"] = list(configuration.accepted_output_modes)
    if configuration.HasField("history_length"):
        written["historyLength"] = configuration.history_length
    if configuration.HasField("task_push_notification_config"):
        push = configuration.task_push_notification_config
        written["pushNotificationConfig"] = write_push_config(push)
    written["blocking"] = not configuration.return_immediately
    return written


def read_configuration(said: Record) -> types.SendMessageConfiguration:
    """How to answer a message; a history of length 0 is the whole one in 0.3."""
    return types.SendMessageConfiguration(
        accepted_output_modes=texts(said, "acceptedOutputModes"),
        task_push_notification_config=within(said, "pushNotificationConfig", read_push_config),
        history_length=count(said, "historyLength") or None,
        return_immediately=flag(said, "blocking") is False,
    )
