"""Send messages in a transaction to a partitioned queue: they carry one partition key.

The key has all of them handled by one message broker, which can make them happen together.
"""

from __future__ import annotations

import sys

from partibus.client import Client, Message


def main(connection_string: str, queue: str = "orders") -> None:
    """Send two messages, both or none."""
    with Client.from_connection_string(connection_string) as client:
        sender = client.sender(queue)
        with client.transaction():
            sender.send(Message("This is a message", partition_key="myPartitionKey"))
            sender.send(Message("This is another", partition_key="myPartitionKey"))
        print("committed")


if __name__ == "__main__":
    main(sys.argv[1])
