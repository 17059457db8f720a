"""Refused: a message whose session id and partition key differ.

Both would be its partition key, and it can have one only. It is refused in a transaction and
outside of one.
"""

from __future__ import annotations

import sys

from partibus.client import Client, InvalidOperation, Message


def main(connection_string: str, queue: str = "orders") -> None:
    """Try it; nothing is sent."""
    with Client.from_connection_string(connection_string) as client:
        message = Message("This is a message", session_id="mySession", partition_key="myKey")
        try:
            client.sender(queue).send(message)
        except InvalidOperation as refusal:
            print(f"refused: {refusal.text}")


if __name__ == "__main__":
    main(sys.argv[1])
