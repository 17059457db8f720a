"""A node put together: both doors are open, and it ends in order."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from partibus.client import Client, Message
from partibus.testing.serve import LiveBroker


def test_a_node_serves_both_doors_until_it_is_told_to_end(tmp_path: Path) -> None:
    with LiveBroker(tmp_path, nodes=1) as broker:
        broker.create_queue("q")
        with Client.from_connection_string(broker.connection_string) as client:
            with client.sender("q") as sender:
                sender.send(Message("kept"))
            with client.receiver("q") as receiver:
                (message,) = receiver.receive(timeout=10)
                assert message.body == b"kept"
        assert broker.health()[0] == 200
        assert broker.terminate() == 0


def test_what_was_refused_is_found_in_the_log_and_neither_bodies_nor_keys_are(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    private = ServiceBusMessage(b"a very private body")
    with LiveBroker(tmp_path, options=("--log-format", "json")) as broker:
        broker.create_queue("q")
        broker.create_queue("s", RequiresSession=True)
        secret = broker.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
        wrong = broker.connection_string.replace(secret, "c3Ryb25nZXIncyBrZXk=")
        with ServiceBusClient.from_connection_string(
            broker.connection_string, retry_total=0
        ) as client:
            with client.get_queue_sender("q") as sender:
                sender.send_messages(private)
            sender = client.get_queue_sender("s")
            with sender, pytest.raises(ServiceBusError) as no_session:
                sender.send_messages(private)
            receiver = client.get_queue_receiver("q")
            with receiver, pytest.raises(ServiceBusError) as no_such:
                receiver.receive_deferred_messages([12345])
            said += [str(no_session.value), str(no_such.value)]
        with ServiceBusClient.from_connection_string(wrong, retry_total=0) as client:
            sender = client.get_queue_sender("q")
            with pytest.raises(ServiceBusError):
                sender.send_messages(private)
        request = urllib.request.Request(f"http://127.0.0.1:{broker.http_port}/q")
        request.add_header("Authorization", "SharedAccessSignature sr=q&sig=private&se=1&skn=k")
        with pytest.raises(urllib.error.HTTPError) as answer:
            urllib.request.urlopen(request)
        said.append(answer.value.read().decode())
        assert broker.terminate() == 0
    lines = [json.loads(line) for line in broker.log.read_text().splitlines()]
    refused = {line["tracking_id"]: line for line in lines if "tracking_id" in line}
    for text in said:
        (tracking_id,) = set(re.findall(r"TrackingId:([0-9a-f-]{36}_G\d+)", text))
        assert refused[tracking_id]["level"] == "info"
        assert refused[tracking_id]["code"]
    assert {"supervisor", "node-0", "node-1"} <= {line["process"] for line in lines}
    written = broker.log.read_text()
    assert "InvalidSignature" in written
    assert not [each for each in ("private", secret, "c3Ryb25nZXI") if each in written]
