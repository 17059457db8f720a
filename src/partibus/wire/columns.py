"""The columns in which messages travel in bulk: names and types, for both ends of the door.

The names are those of the Service Bus documents; the types are Spark's and have exactly one form
in Arrow. How a message becomes a row is not known here.
"""

from __future__ import annotations

from typing import Final

# In the order in which a reader sees them who does not choose.
READ_COLUMNS: Final[dict[str, str]] = {
    "entity": "string",
    "fragment": "int",
    "position": "long",
    "sequenceNumber": "long",
    "enqueuedSequenceNumber": "long",
    "enqueuedTime": "timestamp",
    "messageId": "string",
    "sessionId": "string",
    "partitionKey": "string",
    "correlationId": "string",
    "subject": "string",
    "contentType": "string",
    "to": "string",
    "replyTo": "string",
    "replyToSessionId": "string",
    "scheduledEnqueueTime": "timestamp",
    "expiresAt": "timestamp",
    "deliveryCount": "int",
    "state": "string",
    "deadLetterReason": "string",
    "deadLetterErrorDescription": "string",
    "deadLetterSource": "string",
    "applicationProperties": "map",
    "body": "binary",
}

# What a writer may say of a message. The body is text or octets.
WRITE_COLUMNS: Final[dict[str, str]] = {
    "messageId": "string",
    "sessionId": "string",
    "partitionKey": "string",
    "correlationId": "string",
    "subject": "string",
    "contentType": "string",
    "to": "string",
    "replyTo": "string",
    "replyToSessionId": "string",
    "scheduledEnqueueTime": "timestamp",
    # Milliseconds.
    "timeToLive": "long",
    "applicationProperties": "map",
    "body": "binary",
}

# Where the text fields stand in the properties of a message.
PROPERTY_FIELDS: Final[dict[str, int]] = {
    "to": 2,
    "subject": 3,
    "replyTo": 4,
    "correlationId": 5,
    "contentType": 6,
    "replyToSessionId": 12,
}
