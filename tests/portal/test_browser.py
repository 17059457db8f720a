"""The portal in a real browser against a real broker: what a person can do there.

Needs Chromium or Chrome on the machine, or the one that `playwright install chromium` brings.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from partibus.testing.serve import LiveBroker

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
# The browser has the time that a busy machine needs.
PATIENCE_MS = 30_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path_factory.mktemp("portal")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[api.Browser]:
    with api.sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        found = next(filter(None, map(shutil.which, BROWSERS)), own if own.exists() else None)
        if found is None:
            pytest.skip("there is no Chromium on this machine")
        # Root, as in containers, cannot have the browser's own sandbox.
        sandbox = os.geteuid() != 0
        launched = playwright.chromium.launch(executable_path=str(found), chromium_sandbox=sandbox)
        yield launched
        launched.close()


@pytest.fixture
def page(browser: api.Browser, broker: LiveBroker) -> Iterator[api.Page]:
    """The portal, signed in; what the browser complains of fails the test, but for refusals."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    api.expect.set_options(timeout=PATIENCE_MS)
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if is_complaint(said) else None)
    opened.on("dialog", lambda dialog: complaints.append(dialog.message))
    opened.goto(f"http://127.0.0.1:{broker.http_port}/")
    sign_in(opened, broker.connection_string)
    api.expect(opened.get_by_role("heading", name="Namespace")).to_be_visible()
    yield opened
    context.close()
    assert not complaints


def is_complaint(said: api.ConsoleMessage) -> bool:
    # The browser also notes every request that was refused; the page tells the person of those.
    return said.type == "error" and not said.text.startswith("Failed to load resource")


def sign_in(page: api.Page, text: str) -> None:
    page.get_by_label("Connection string").fill(text)
    page.get_by_role("button", name="Sign in").click()


def administration(broker: LiveBroker) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        broker.tls_connection_string, connection_verify=str(broker.authority)
    )


def test_M4_P5_a_queue_is_created_with_partitioning_ticked(
    page: api.Page, broker: LiveBroker
) -> None:
    page.get_by_role("link", name="New queue").click()
    assert page.get_by_role("checkbox", name="Enable partitioning").is_checked()
    page.get_by_label("Name").fill("from-the-portal")
    page.get_by_label("Maximum size").select_option("2048")
    page.get_by_label("Lock duration").fill("PT30S")
    page.get_by_role("button", name="Create").click()
    api.expect(page.get_by_role("heading", name="from-the-portal")).to_be_visible()
    with administration(broker) as client:
        queue = client.get_queue("from-the-portal")
    assert queue.enable_partitioning
    assert queue.lock_duration is not None
    assert (queue.max_size_in_megabytes, queue.lock_duration.seconds) == (2048 * 16, 30)
    # Sixteen fragments, each with the store that it lies in.
    fragments = page.locator("table", has_text="Fragment").first.locator("tbody tr")
    api.expect(fragments).to_have_count(16)


def test_P5_a_queue_is_conventional_where_the_tick_is_taken_away(
    page: api.Page, broker: LiveBroker
) -> None:
    page.get_by_role("link", name="New queue").click()
    page.get_by_label("Name").fill("plain")
    page.get_by_role("checkbox", name="Enable partitioning").uncheck()
    page.get_by_role("button", name="Create").click()
    api.expect(page.get_by_role("heading", name="plain")).to_be_visible()
    with administration(broker) as client:
        assert not client.get_queue("plain").enable_partitioning


def test_M4_the_overview_shows_entities_and_their_maximum_size(
    page: api.Page, broker: LiveBroker
) -> None:
    broker.create_queue("big", enable_partitioning=True, max_size_in_megabytes=5120)
    broker.create_topic("news", max_size_in_megabytes=1024)
    page.get_by_role("link", name="Overview").click()
    row = page.get_by_role("row", name=re.compile("^big "))
    api.expect(row).to_contain_text("80 GB")
    api.expect(page.get_by_role("row", name=re.compile("^news "))).to_contain_text("1 GB")


def test_U2_advice_stands_where_something_is_chosen(page: api.Page) -> None:
    api.expect(page.get_by_text("operation timeout of 60 seconds")).to_be_visible()
    api.expect(page.get_by_text("keep the connection open")).to_be_visible()
    page.get_by_role("link", name="New queue").click()
    api.expect(page.get_by_text("For low traffic a conventional entity")).to_be_visible()
    api.expect(page.get_by_text("consistency, bought with availability").first).to_be_visible()


def test_a_message_is_sent_seen_and_purged(page: api.Page, broker: LiveBroker) -> None:
    broker.create_queue("mail", enable_partitioning=True)
    page.goto(page.url.split("#")[0] + "#/entity/mail")
    page.get_by_text("Send a message").click()
    api.expect(page.get_by_text("Leave it empty unless")).to_be_visible()
    page.get_by_label("Body").fill(HOSTILE)
    page.get_by_label("Partition key").fill("customer 7")
    page.get_by_role("button", name="Send", exact=True).click()
    api.expect(page.get_by_text("Accepted: it is on disk.")).to_be_visible()
    page.get_by_role("button", name="Peek messages").click()
    page.locator(".message summary").click()
    # What a message says is text, whatever it says.
    api.expect(page.get_by_text(HOSTILE)).to_be_visible()
    api.expect(page.get_by_text("PartitionKey: customer 7")).to_be_visible()
    assert page.title() == "partibus"
    page.get_by_role("button", name="Empty").click()
    api.expect(page.get_by_text("Type the name 'mail' first.")).to_be_visible()
    page.get_by_label("Its name, to be sure").fill("mail")
    page.get_by_role("button", name="Empty").click()
    api.expect(page.get_by_text("1 messages removed.")).to_be_visible()


def test_dead_letters_are_seen_with_their_reason(page: api.Page, broker: LiveBroker) -> None:
    broker.create_queue("failing")
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        with client.get_queue_sender("failing") as sender:
            sender.send_messages(ServiceBusMessage("bad order"))
        with client.get_queue_receiver("failing", max_wait_time=20) as receiver:
            receiver.dead_letter_message(next(receiver), reason="no such customer")
    page.goto(page.url.split("#")[0] + "#/entity/failing")
    page.get_by_role("button", name="Peek dead letters").click()
    page.locator(".message summary").click()
    api.expect(page.get_by_text("DeadLetterReason: no such customer")).to_be_visible()


def test_a_subscription_gets_rules_and_messages(page: api.Page, broker: LiveBroker) -> None:
    broker.create_topic("orders")
    page.goto(page.url.split("#")[0] + "#/entity/orders")
    page.get_by_label("New subscription").fill("north")
    page.get_by_role("button", name="Add").click()
    page.get_by_role("link", name="north").click()
    api.expect(page.get_by_text("1=1")).to_be_visible()
    page.get_by_label("New rule").fill("by-region")
    page.get_by_label("SQL filter").fill("region = ")
    page.get_by_role("button", name="Add").click()
    api.expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("SQL filter").fill("region = 'north'")
    page.get_by_role("button", name="Add").click()
    api.expect(page.get_by_role("cell", name="region = 'north'")).to_be_visible()
    page.get_by_role("row", name=re.compile("Default")).get_by_role("button").click()
    api.expect(page.get_by_text("1=1")).to_have_count(0)
    with administration(broker) as client:
        assert [rule.name for rule in client.list_rules("orders", "north")] == ["by-region"]


def test_a_queue_is_deleted_by_who_types_its_name(page: api.Page, broker: LiveBroker) -> None:
    broker.create_queue("over")
    page.goto(page.url.split("#")[0] + "#/entity/over")
    page.get_by_label("Its name, to be sure").fill("over")
    page.get_by_role("button", name="Delete").click()
    api.expect(page.get_by_role("heading", name="Namespace")).to_be_visible()
    with administration(broker) as client:
        assert "over" not in [queue.name for queue in client.list_queues()]


def test_A4_the_key_stays_in_the_browser_and_a_wrong_one_is_told(
    browser: api.Browser, broker: LiveBroker
) -> None:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(f"{request.url} {request.all_headers()}"))
    page.goto(f"http://127.0.0.1:{broker.http_port}/")
    sign_in(page, "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=d3Jvbmc=")
    api.expect(page.get_by_role("alert").filter(has_text="InvalidSignature")).to_be_visible()
    sign_in(page, broker.connection_string)
    api.expect(page.get_by_role("heading", name="Namespace")).to_be_visible()
    key = re.search("SharedAccessKey=([^;]+)", broker.connection_string)
    assert key is not None
    assert sent
    assert not [each for each in sent if key[1] in each]
    page.get_by_role("button", name="Sign out").click()
    api.expect(page.get_by_label("Connection string")).to_be_visible()
    page.reload()
    api.expect(page.get_by_label("Connection string")).to_be_visible()
    context.close()
