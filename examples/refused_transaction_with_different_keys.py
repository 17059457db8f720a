"""Refused: messages with different partition keys in one transaction to a partitioned queue.

The second message is refused; the exception leaves the block, so the first is rolled back.
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
                sender.send(Message("This is a message", partition_key="myPartitionKey"))
                sender.send(Message("This is another", partition_key="anotherKey"))
        except InvalidOperation as refusal:
            print(f"refused: {refusal.text}")


if __name__ == "__main__":
    main(sys.argv[1])
