"""Refused on a partitioned queue: messages of two sessions in one transaction.

A session lives in one fragment, and two may live in two. On a conventional queue the same is
allowed.
"""

from __future__ import annotations

import sys

from partibus.client import Client, InvalidOperation, Message


def main(connection_string: str, queue: str = "conversations") -> None:
    """Try it; on a partitioned queue nothing is sent."""
    with Client.from_connection_string(connection_string) as client:
        sender = client.sender(queue)
        try:
            with client.transaction():
                sender.send(Message("This is a message", session_id="mySession"))
                sender.send(Message("This is another", session_id="anotherSession"))
            print("committed: the queue is not partitioned")
        except InvalidOperation as refusal:
            print(f"refused: {refusal.text}")


if __name__ == "__main__":
    main(sys.argv[1])
