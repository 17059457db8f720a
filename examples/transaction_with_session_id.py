"""Send a message in a transaction to a partitioned queue with sessions.

There the session id is the partition key; a message that has a partition key too has the same.
"""

from __future__ import annotations

import sys

from partibus.client import Client, Message


def main(connection_string: str, queue: str = "conversations") -> None:
    """Send one message of a session in a transaction."""
    with Client.from_connection_string(connection_string) as client:
        sender = client.sender(queue)
        with client.transaction():
            sender.send(Message("This is a message", session_id="mySession"))
        print("committed")


if __name__ == "__main__":
    main(sys.argv[1])
