"""Messages: one call starts a turn, in a new session or in one that exists."""

from __future__ import annotations

from litestar import Response, post
from litestar.openapi import ResponseSpec
from litestar.params import JSONBody

from perdure.apps.server.inputs import NewMessage
from perdure.apps.server.routes.parameters import TheCaller, TheConversations
from perdure.apps.server.values import Sent


@post(
    "/messages",
    status_code=200,
    is_for_visitors=True,
    is_keyed=True,
    responses={
        201: ResponseSpec(
            Sent, generate_examples=False, description="The message began a session."
        ),
        202: ResponseSpec(
            Sent, generate_examples=False, description="The message is queued in a running turn."
        ),
    },
)
async def send_message(
    caller: TheCaller, conversations: TheConversations, data: JSONBody[NewMessage]
) -> Response[Sent]:
    """Send a message.

    The status is 201 for a new session, 200 for an existing session, and 202 if the message is
    queued because a turn runs.
    """
    sent = await conversations.send(caller, data)
    status = 201 if sent.is_new else 200 if sent.status == "started" else 202
    return Response(sent, status_code=status)
