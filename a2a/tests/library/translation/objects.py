"""Any object of A2A, for properties: as protobuf of 1.0, and as JSON of 0.3."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from google.protobuf.json_format import ParseDict
from hypothesis import strategies as st

from a2a import types

Timestamp = type(types.TaskStatus().timestamp)
Json = st.SearchStrategy[Any]

texts = st.text(max_size=6)
names = st.text(min_size=1, max_size=6)
booleans = st.booleans()
scalars = booleans | st.integers(-999, 999).map(lambda each: each / 8) | texts
# Without null: the SDK's own JSON drops a null member of free objects, ours keeps it.
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
free = st.dictionaries(texts, values, max_size=2)
instants = st.builds(Timestamp, seconds=st.integers(0, 2**32), nanos=st.integers(0, 999_999_999))


def maybe(strategy: Json) -> Json:
    return st.none() | strategy


def few(strategy: Json) -> Json:
    return st.lists(strategy, max_size=2)


@st.composite
def protos(draw: st.DrawFn, kind: Any, **fields: Json) -> Any:
    """A message of `kind`; a field that is free JSON is put in by protobuf's own reader."""
    message = kind()
    for name, strategy in fields.items():
        value = draw(strategy)
        if value is None:
            continue
        known = kind.DESCRIPTOR.fields_by_name[name]
        if known.message_type and known.message_type.name in {"Struct", "Value"}:
            ParseDict(value, getattr(message, name))
        else:
            message.MergeFrom(kind(**{name: value}))
    return message


# ── protobuf ─────────────────────────────────────────────────────────────────────────────────────────

_described = {"metadata": maybe(free), "filename": texts, "media_type": texts}
parts = (
    protos(types.Part, text=texts, **_described)
    | protos(types.Part, raw=st.binary(max_size=8), **_described)
    | protos(types.Part, url=texts, **_described)
    | protos(types.Part, data=values | free, **_described)
)
messages = protos(
    types.Message,
    message_id=texts,
    context_id=texts,
    task_id=texts,
    role=st.sampled_from(list(types.Role.values())),
    parts=few(parts),
    metadata=maybe(free),
    extensions=few(texts),
    reference_task_ids=few(texts),
)
statuses = protos(
    types.TaskStatus,
    state=st.sampled_from(list(types.TaskState.values())),
    message=maybe(messages),
    timestamp=maybe(instants),
)
artifacts = protos(
    types.Artifact,
    artifact_id=texts,
    name=texts,
    description=texts,
    parts=few(parts),
    metadata=maybe(free),
    extensions=few(texts),
)
tasks = protos(
    types.Task,
    id=texts,
    context_id=texts,
    status=maybe(statuses),
    artifacts=few(artifacts),
    history=few(messages),
    metadata=maybe(free),
)
status_updates = protos(
    types.TaskStatusUpdateEvent,
    task_id=texts,
    context_id=texts,
    status=maybe(statuses),
    metadata=maybe(free),
)
artifact_updates = protos(
    types.TaskArtifactUpdateEvent,
    task_id=texts,
    context_id=texts,
    artifact=artifacts,
    append=booleans,
    last_chunk=booleans,
    metadata=maybe(free),
)
pushes = protos(
    types.TaskPushNotificationConfig,
    id=texts,
    task_id=texts,
    url=texts,
    token=texts,
    authentication=maybe(protos(types.AuthenticationInfo, scheme=texts, credentials=texts)),
)
configurations = protos(
    types.SendMessageConfiguration,
    accepted_output_modes=few(texts),
    task_push_notification_config=maybe(pushes),
    history_length=maybe(st.integers(-1, 9)),
    return_immediately=booleans,
)
requests: dict[str, Json] = {
    "SendMessage": protos(
        types.SendMessageRequest,
        message=messages,
        configuration=maybe(configurations),
        metadata=maybe(free),
    ),
    "GetTask": protos(types.GetTaskRequest, id=texts, history_length=maybe(st.integers(-1, 9))),
    "CancelTask": protos(types.CancelTaskRequest, id=texts, metadata=maybe(free)),
    "SubscribeToTask": protos(types.SubscribeToTaskRequest, id=texts),
    "CreateTaskPushNotificationConfig": pushes,
    "GetTaskPushNotificationConfig": protos(
        types.GetTaskPushNotificationConfigRequest, id=texts, task_id=texts
    ),
    "ListTaskPushNotificationConfigs": protos(
        types.ListTaskPushNotificationConfigsRequest, task_id=texts
    ),
    "DeleteTaskPushNotificationConfig": protos(
        types.DeleteTaskPushNotificationConfigRequest, id=names, task_id=texts
    ),
}
answers = protos(types.SendMessageResponse, task=tasks) | protos(
    types.SendMessageResponse, message=messages
)
events = (
    protos(types.StreamResponse, task=tasks)
    | protos(types.StreamResponse, message=messages)
    | protos(types.StreamResponse, status_update=status_updates)
    | protos(types.StreamResponse, artifact_update=artifact_updates)
)

_scopes = st.dictionaries(texts, texts, max_size=2)
_flows = (
    protos(
        types.OAuthFlows,
        authorization_code=protos(
            types.AuthorizationCodeOAuthFlow,
            authorization_url=texts,
            token_url=texts,
            refresh_url=texts,
            scopes=_scopes,
            pkce_required=booleans,
        ),
    )
    | protos(
        types.OAuthFlows,
        client_credentials=protos(
            types.ClientCredentialsOAuthFlow, token_url=texts, refresh_url=texts, scopes=_scopes
        ),
    )
    | protos(
        types.OAuthFlows,
        implicit=protos(
            types.ImplicitOAuthFlow, authorization_url=texts, refresh_url=texts, scopes=_scopes
        ),
    )
    | protos(
        types.OAuthFlows,
        password=protos(
            types.PasswordOAuthFlow, token_url=texts, refresh_url=texts, scopes=_scopes
        ),
    )
    | protos(types.OAuthFlows, device_code=protos(types.DeviceCodeOAuthFlow, token_url=texts))
)
_schemes = (
    protos(
        types.SecurityScheme,
        api_key_security_scheme=protos(
            types.APIKeySecurityScheme,
            description=texts,
            location=st.sampled_from(["cookie", "header", "query"]),
            name=texts,
        ),
    )
    | protos(
        types.SecurityScheme,
        http_auth_security_scheme=protos(
            types.HTTPAuthSecurityScheme, description=texts, scheme=texts, bearer_format=texts
        ),
    )
    | protos(
        types.SecurityScheme,
        oauth2_security_scheme=protos(
            types.OAuth2SecurityScheme, description=texts, flows=_flows, oauth2_metadata_url=texts
        ),
    )
    | protos(
        types.SecurityScheme,
        open_id_connect_security_scheme=protos(
            types.OpenIdConnectSecurityScheme, description=texts, open_id_connect_url=texts
        ),
    )
    | protos(
        types.SecurityScheme,
        mtls_security_scheme=protos(types.MutualTlsSecurityScheme, description=texts),
    )
)
_requirements = protos(
    types.SecurityRequirement,
    schemes=st.dictionaries(texts, protos(types.StringList, list=few(texts)), max_size=2),
)


def _interface(versions: list[str]) -> Json:
    return protos(
        types.AgentInterface,
        url=texts,
        protocol_binding=texts,
        tenant=texts,
        protocol_version=st.sampled_from(versions),
    )


_legacy = ["", "0.3", "0.3.0", "0.4"]
cards = protos(
    types.AgentCard,
    name=texts,
    description=texts,
    version=texts,
    supported_interfaces=st.tuples(
        _interface(_legacy), few(_interface([*_legacy, "0.2", "1.0", "1.1.2", "new"]))
    ).map(lambda pair: [pair[0], *pair[1]]),
    provider=maybe(protos(types.AgentProvider, url=texts, organization=texts)),
    documentation_url=maybe(texts),
    icon_url=maybe(texts),
    capabilities=maybe(
        protos(
            types.AgentCapabilities,
            streaming=maybe(booleans),
            push_notifications=maybe(booleans),
            extended_agent_card=maybe(booleans),
            extensions=few(
                protos(
                    types.AgentExtension,
                    uri=texts,
                    description=texts,
                    required=booleans,
                    params=maybe(free),
                )
            ),
        )
    ),
    security_schemes=st.dictionaries(texts, _schemes, max_size=2),
    security_requirements=few(_requirements),
    default_input_modes=few(texts),
    default_output_modes=few(texts),
    skills=few(
        protos(
            types.AgentSkill,
            id=texts,
            name=texts,
            description=texts,
            tags=few(texts),
            examples=few(texts),
            input_modes=few(texts),
            output_modes=few(texts),
            security_requirements=few(_requirements),
        )
    ),
    signatures=few(
        protos(types.AgentCardSignature, protected=texts, signature=texts, header=maybe(free))
    ),
)

# ── JSON of 0.3 ──────────────────────────────────────────────────────────────────────────────────────


def objects(must: dict[str, Json], may: dict[str, Json]) -> Json:
    """An object; what it may have may be null as well, and there are members that nobody knows."""
    optional = {name: maybe(each) for name, each in may.items()}
    return st.fixed_dictionaries(must, optional=optional | {"unheardOf": values})


def _kind(name: str) -> Json:
    return st.just(name)


_free = {"metadata": free}
_file = {"name": texts, "mimeType": texts}
_bytes = st.binary(max_size=8).map(lambda each: b64encode(each).decode())
_wrapped = st.builds(
    lambda value, said: {"kind": "data", "data": {"value": value}, "metadata": said},
    values,
    free.map(lambda each: each | {"data_part_compat": True}),
)
_parts = (
    objects({"kind": _kind("text"), "text": texts}, _free)
    | objects({"kind": _kind("file"), "file": objects({"bytes": _bytes}, _file)}, _free)
    | objects({"kind": _kind("file"), "file": objects({"uri": texts}, _file)}, _free)
    | objects({"kind": _kind("data"), "data": free}, _free)
    | _wrapped
)
_messages = objects(
    {
        "kind": _kind("message"),
        "role": st.sampled_from(["user", "agent"]),
        "messageId": names,
        "parts": few(_parts),
    },
    {
        "contextId": texts,
        "taskId": texts,
        "referenceTaskIds": few(texts),
        "extensions": few(texts),
    }
    | _free,
)
_instants = st.one_of(
    instants.map(lambda each: each.ToJsonString()),
    st.datetimes().map(lambda each: each.isoformat() + "+00:00"),
)
_states = (
    "submitted working completed failed canceled input-required rejected auth-required unknown"
)
_statuses = objects(
    {
        "state": st.sampled_from(
            [
                "submitted",
                "working",
                "input-required",
                "completed",
                "canceled",
                "failed",
                "rejected",
                "auth-required",
                "unknown",
            ]
        )
    },
    {"message": _messages, "timestamp": _instants},
)
_artifacts = objects(
    {"artifactId": texts, "parts": few(_parts)},
    {"name": texts, "description": texts, "extensions": few(texts)} | _free,
)
_tasks = objects(
    {"kind": _kind("task"), "id": texts, "contextId": texts, "status": _statuses},
    {"history": few(_messages), "artifacts": few(_artifacts)} | _free,
)
_status_updates = objects(
    {
        "kind": _kind("status-update"),
        "taskId": texts,
        "contextId": texts,
        "status": _statuses,
        "final": booleans,
    },
    _free,
)
_artifact_updates = objects(
    {
        "kind": _kind("artifact-update"),
        "taskId": texts,
        "contextId": texts,
        "artifact": _artifacts,
    },
    {"append": booleans, "lastChunk": booleans} | _free,
)
_pushes = objects(
    {"url": texts},
    {
        "id": texts,
        "token": texts,
        "authentication": objects({"schemes": few(texts)}, {"credentials": texts}),
    },
)
_task_pushes = objects({"taskId": names, "pushNotificationConfig": _pushes}, {})
_id = objects({"id": names}, _free)
legacy_params: dict[str, Json] = {
    "SendMessage": objects(
        {"message": _messages},
        {
            "configuration": objects(
                {},
                {
                    "acceptedOutputModes": few(texts),
                    "blocking": booleans,
                    "historyLength": st.integers(-1, 9),
                    "pushNotificationConfig": _pushes,
                },
            )
        }
        | _free,
    ),
    "GetTask": objects({"id": names}, {"historyLength": st.integers(-1, 9)} | _free),
    "CancelTask": _id,
    "SubscribeToTask": _id,
    "CreateTaskPushNotificationConfig": _task_pushes,
    "GetTaskPushNotificationConfig": _id
    | objects({"id": names, "pushNotificationConfigId": names}, _free),
    "ListTaskPushNotificationConfigs": _id,
    "DeleteTaskPushNotificationConfig": objects(
        {"id": names, "pushNotificationConfigId": names}, _free
    ),
}
legacy_answers = _tasks | _messages
legacy_events = _tasks | _messages | _status_updates | _artifact_updates
legacy_task_pushes = few(_task_pushes)

_urls = {"authorizationUrl": texts, "tokenUrl": texts}
_more = {"refreshUrl": texts}
_described_scheme = {"description": texts}
_legacy_flows = objects(
    {},
    {
        "authorizationCode": objects(_urls | {"scopes": _scopes}, _more),
        "clientCredentials": objects({"tokenUrl": texts, "scopes": _scopes}, _more),
        "implicit": objects({"authorizationUrl": texts, "scopes": _scopes}, _more),
        "password": objects({"tokenUrl": texts, "scopes": _scopes}, _more),
    },
)
_legacy_schemes = (
    objects(
        {
            "type": _kind("apiKey"),
            "in": st.sampled_from(["cookie", "header", "query"]),
            "name": texts,
        },
        _described_scheme,
    )
    | objects({"type": _kind("http"), "scheme": texts}, _described_scheme | {"bearerFormat": texts})
    | objects(
        {"type": _kind("oauth2"), "flows": _legacy_flows},
        _described_scheme | {"oauth2MetadataUrl": texts},
    )
    | objects({"type": _kind("openIdConnect"), "openIdConnectUrl": texts}, _described_scheme)
    | objects({"type": _kind("mutualTLS")}, _described_scheme)
)
_security = few(st.dictionaries(texts, few(texts), max_size=2))
legacy_cards = objects(
    {
        "name": texts,
        "description": texts,
        "version": texts,
        "url": texts,
        "capabilities": objects(
            {},
            {
                "streaming": booleans,
                "pushNotifications": booleans,
                "stateTransitionHistory": booleans,
                "extensions": few(
                    objects(
                        {"uri": texts},
                        {"description": texts, "required": booleans, "params": free},
                    )
                ),
            },
        ),
        "defaultInputModes": few(texts),
        "defaultOutputModes": few(texts),
        "skills": few(
            objects(
                {"id": texts, "name": texts, "description": texts, "tags": few(texts)},
                {
                    "examples": few(texts),
                    "inputModes": few(texts),
                    "outputModes": few(texts),
                    "security": _security,
                },
            )
        ),
    },
    {
        "preferredTransport": texts,
        "additionalInterfaces": few(objects({"url": texts, "transport": texts}, {})),
        "provider": objects({"organization": texts, "url": texts}, {}),
        "iconUrl": texts,
        "documentationUrl": texts,
        "securitySchemes": st.dictionaries(texts, _legacy_schemes, max_size=2),
        "security": _security,
        "supportsAuthenticatedExtendedCard": booleans,
        "signatures": few(objects({"protected": texts, "signature": texts}, {"header": free})),
    },
)
