"""Send an order every so often, from a few regions; for the pipeline `orders-by-region`.

`python send_orders.py CONNECTION_STRING [ORDERS] [SECONDS_BETWEEN]`
"""

from __future__ import annotations

import json
import random
import sys
import time

from partibus.client import Client, Message

QUEUE = "orders"
REGIONS = ("north", "south", "east", "west")


def main(connection_string: str, orders: str = "200", seconds_between: str = "0.5") -> None:
    """Send so many orders."""
    with Client.from_connection_string(connection_string) as client, client.sender(QUEUE) as sender:
        for number in range(int(orders)):
            region = random.choice(REGIONS)  # noqa: S311 - nothing depends on it
            amount = round(random.uniform(1, 100), 2)  # noqa: S311
            order = {"number": number, "region": region, "amount": amount}
            sender.send(Message(json.dumps(order), partition_key=region))
            time.sleep(float(seconds_between))


if __name__ == "__main__":
    main(*sys.argv[1:])
