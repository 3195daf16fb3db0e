"""Frames as the TypeScript peers of the wire `a2a-nats/1` send them: (operation, payload)."""

from __future__ import annotations

TASK = "16c264e9-f0c4-4be0-a726-ca7f10bc457b"

_FRAME = '{"protocol":"a2a-nats/1","request":{"jsonrpc":"2.0","method":'
_EVENT = '{"protocol":"a2a-nats/1","kind":"response","response":{"jsonrpc":"2.0","id":6,"result":'
_IDS = '"taskId":"13a3ae3f-0c7e-46db-87ff-9e20b1f4ebf2","contextId":"4e009fa7-7719-4e19-a05e-e9573c3ced85"'

REQUESTS = [
    (
        "SendMessage",
        _FRAME
        + '"message/send","params":{"message":{"kind":"message","role":"user","messageId":"m-1",'
        '"parts":[{"kind":"text","text":"hello é😀"}]}},"id":1}}',
    ),
    (
        "SendMessage",
        _FRAME
        + '"message/send","params":{"message":{"kind":"message","role":"user","messageId":"m-1",'
        '"parts":[{"kind":"text","text":"hello"}]},"configuration":{"blocking":true}},"id":2}}',
    ),
    ("GetTask", _FRAME + f'"tasks/get","params":{{"id":"{TASK}","historyLength":1}},"id":3}}}}'),
    ("GetTask", _FRAME + '"tasks/get","params":{"id":"nope"},"id":4}}'),
    ("CancelTask", _FRAME + f'"tasks/cancel","params":{{"id":"{TASK}"}},"id":5}}}}'),
    (
        "SendStreamingMessage",
        _FRAME + '"message/stream","params":{"message":{"kind":"message","role":"user",'
        '"messageId":"m-2","parts":[{"kind":"text","text":"task 2"}]}},"id":6}}',
    ),
    ("SubscribeToTask", _FRAME + f'"tasks/resubscribe","params":{{"id":"{TASK}"}},"id":7}}}}'),
    ("GetExtendedAgentCard", _FRAME + '"agent/getAuthenticatedExtendedCard","id":13}}'),
    (
        "CreateTaskPushNotificationConfig",
        _FRAME + f'"tasks/pushNotificationConfig/set","params":{{"taskId":"{TASK}",'
        '"pushNotificationConfig":{"url":"https://example.invalid/cb","token":"t"}},"id":14}}',
    ),
    (
        "DeleteTaskPushNotificationConfig",
        _FRAME + f'"tasks/pushNotificationConfig/delete","params":{{"id":"{TASK}",'
        f'"pushNotificationConfigId":"{TASK}"}},"id":17}}}}',
    ),
    (
        "CancelTask",
        _FRAME + '"tasks/cancel","params":{"id":"9bc33c41-2817-4fbb-be8a-a0f5462c8bce"},"id":20}}',
    ),
    (
        "SendMessage",
        _FRAME
        + '"message/send","params":{"message":{"kind":"message","role":"user","messageId":"m-1",'
        '"parts":[{"kind":"text","text":"hello"}]}},"id":1},'
        '"responseSubject":"a2a.client.client-a.responses"}',
    ),
]

RESPONSES = [
    (
        "SendMessage",
        (
            '{"jsonrpc":"2.0","id":1,"result":{"kind":"message","role":"agent","messageId":"r-m-1",'
            '"parts":[{"kind":"text","text":"echo: hello é😀"}],'
            '"contextId":"fbbfa492-3a64-4efc-aacf-6a1264fe41a8"}}'
        ),
    ),
    (
        "GetTask",
        (
            f'{{"jsonrpc":"2.0","id":3,"result":{{"kind":"task","id":"{TASK}",'
            '"contextId":"c8583024-4b37-433f-b297-050617f20ae8","status":{"state":"completed"},'
            '"history":[{"kind":"message","role":"user","messageId":"m-1",'
            '"parts":[{"kind":"text","text":"task 2"}],'
            f'"contextId":"c8583024-4b37-433f-b297-050617f20ae8","taskId":"{TASK}"}}],'
            '"artifacts":[{"artifactId":"a1","parts":[{"kind":"text","text":"chunk 0 "},'
            '{"kind":"text","text":"chunk 1 "}]}]}}'
        ),
    ),
    (
        "CreateTaskPushNotificationConfig",
        (
            f'{{"jsonrpc":"2.0","id":14,"result":{{"taskId":"{TASK}","pushNotificationConfig":'
            f'{{"url":"https://example.invalid/cb","token":"t","id":"{TASK}"}}}}}}'
        ),
    ),
    ("DeleteTaskPushNotificationConfig", '{"jsonrpc":"2.0","id":17,"result":null}'),
    (
        "CancelTask",
        (
            '{"jsonrpc":"2.0","id":20,"result":{"kind":"task","id":"9bc33c41","contextId":"bf76bece",'
            '"status":{"state":"canceled"}}}'
        ),
    ),
]

EVENTS = [
    _EVENT + '{"kind":"task","id":"13a3ae3f-0c7e-46db-87ff-9e20b1f4ebf2",'
    '"contextId":"4e009fa7-7719-4e19-a05e-e9573c3ced85","status":{"state":"submitted"},'
    '"history":[{"kind":"message","role":"user","messageId":"m-2",'
    '"parts":[{"kind":"text","text":"task 2"}],'
    '"contextId":"4e009fa7-7719-4e19-a05e-e9573c3ced85",'
    '"taskId":"13a3ae3f-0c7e-46db-87ff-9e20b1f4ebf2"}]}}}',
    _EVENT + f'{{"kind":"status-update",{_IDS},"status":{{"state":"working"}},"final":false}}}}}}',
    _EVENT + f'{{"kind":"artifact-update",{_IDS},"artifact":{{"artifactId":"a1",'
    '"parts":[{"kind":"text","text":"chunk 0 "}]},"append":false,"lastChunk":false}}}',
    _EVENT + f'{{"kind":"artifact-update",{_IDS},"artifact":{{"artifactId":"a1",'
    '"parts":[{"kind":"text","text":"chunk 1 "}]},"append":true,"lastChunk":true}}}',
    _EVENT + f'{{"kind":"status-update",{_IDS},"status":{{"state":"completed"}},"final":true}}}}}}',
    _EVENT + '{"kind":"status-update","taskId":"9bc33c41","contextId":"bf76bece",'
    '"status":{"state":"canceled"},"final":true}}}',
    _EVENT + '{"kind":"message","role":"agent","messageId":"r-m-1",'
    '"parts":[{"kind":"text","text":"echo: hello"}],'
    '"contextId":"75f49552-8a47-4608-8ffd-6d07fd733fbe"}}}',
]

COMPLETE = '{"protocol":"a2a-nats/1","kind":"complete","id":6}'

ERRORS = [
    '{"jsonrpc":"2.0","id":4,"error":{"code":-32001,"message":"Task not found: nope"}}',
    f'{{"jsonrpc":"2.0","id":5,"error":{{"code":-32002,"message":"Task not cancelable: {TASK}"}}}}',
]
