"""Refused: a message without a partition key, in a transaction, to a partitioned queue.

Without a key the message could go to any fragment, and a transaction belongs to one.
"""

from __future__ import annotations

import sys

from partibus.client import Client, InvalidOperation, Message


def main(connection_string: str, queue: str = "orders") -> None:
    """Try it; nothing is sent."""
    with Client.from_connection_string(connection_string) as client:
        sender = client.sender(queue)
        try:
            with client.transaction():
                sender.send(Message("This is a message"))
        except InvalidOperation as refusal:
            print(f"refused: {refusal.text}")


if __name__ == "__main__":
    main(sys.argv[1])
