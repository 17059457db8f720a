from __future__ import annotations

import pytest

from partibus.pipeline.options import WrongOption, read_options, write_options

KEY = "c2VjcmV0LWtleQ=="
CONNECTION = f"Endpoint=sb://h:1;SharedAccessKeyName=n;SharedAccessKey={KEY}"
WHERE = {"connectionString": CONNECTION, "queue": "orders"}


def test_S1_a_queue_is_read_from_its_beginning_by_default() -> None:
    options = read_options(WHERE)
    assert options.place.entity == "orders"
    assert options.mode == "browse"
    assert options.fail_on_data_loss


def test_S1_names_of_options_have_no_case() -> None:
    options = read_options(
        {"CONNECTIONSTRING": CONNECTION, "Queue": "q", "maxoffsetspertrigger": "5"}
    )
    assert options.messages_per_trigger == 5


@pytest.mark.parametrize(
    ("given", "entity"),
    [
        ({"topic": "news", "subscription": "all"}, "news/subscriptions/all"),
        ({"queue": "q", "subQueue": "deadLetter"}, "q/$deadletterqueue"),
        (
            {"topic": "t", "subscription": "s", "subQueue": "deadletter"},
            "t/subscriptions/s/$deadletterqueue",
        ),
    ],
)
def test_S1_subscriptions_and_dead_letters_are_named(given: dict[str, str], entity: str) -> None:
    assert read_options({"connectionString": CONNECTION, **given}).place.entity == entity


def test_S1_the_connection_string_may_name_the_entity() -> None:
    given = {"connectionString": CONNECTION + ";EntityPath=orders"}
    assert read_options(given).place.entity == "orders"


def test_S2_offsets_may_be_whole_sequence_numbers() -> None:
    given = {**WHERE, "startingOffsets": f'{{"3": {(3 << 48) + 12}, "4": 1}}'}
    assert read_options(given).starting == {3: 12, 4: 1}


def test_S2_times_are_iso_or_milliseconds() -> None:
    given = {**WHERE, "startingTimestamp": "1970-01-01T00:00:02+00:00", "endingTimestamp": "3000"}
    options = read_options(given)
    assert (options.starting_ms, options.ending_ms) == (2000, 3000)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"quue": "x"}, "did you mean 'queue'"),
        ({"maxMessagesPerTrigger": "many"}, "a number from 1 on, not 'many'"),
        ({"mode": "steal"}, "one of browse, consume"),
        ({"mode": "consume"}, "needs a 'readerName'"),
        ({"mode": "consume", "readerName": "r", "startingOffsets": "latest"}, "it has no"),
        ({"mode": "consume", "readerName": "r", "maxBytesPerTrigger": "9"}, "limited by"),
        ({"maxTriggerDelay": "0s"}, "a span like 500ms, 30s, 15m or 1h, not '0s'"),
        ({"fragmentsPerTask": "0"}, "a number from 1 on"),
        ({"failOnDataLoss": "perhaps"}, "one of true, false"),
        ({"topic": "t"}, "give 'subscription'"),
        ({"subscription": "s"}, "needs the 'topic'"),
        ({"startingOffsets": "soon"}, "'earliest', 'latest' or JSON"),
        ({"startingTimestamp": "2026-01-01"}, "is a time like"),
        ({"startingTimestamp": "1", "startingOffsets": "latest"}, "not both"),
        ({"endingOffsets": "earliest"}, "'latest' or JSON"),
        ({"httpEndpoint": "amqp://x"}, "http:// or https://"),
        ({"connectionString": ""}, "'connectionString' is missing"),
        ({"connectionString": f"SharedAccessKey={KEY}"}, "no Endpoint"),
    ],
)
def test_S1_a_wrong_option_is_said_clearly_and_without_keys(
    given: dict[str, str], text: str
) -> None:
    with pytest.raises(WrongOption, match=r".") as caught:
        read_options({**WHERE, **given})
    assert text in str(caught.value)
    assert KEY not in str(caught.value)


def test_A4_options_do_not_show_the_key() -> None:
    assert KEY not in repr(read_options(WHERE))
    assert KEY not in repr(write_options(WHERE))


def test_S1_a_writer_names_a_whole_entity() -> None:
    with pytest.raises(WrongOption, match="no part of it"):
        write_options({**WHERE, "subQueue": "deadletter"})
    assert write_options({"connectionString": CONNECTION, "topic": "t"}).place.entity == "t"


def test_S1_a_batch_number_belongs_to_a_writer() -> None:
    given = {"connectionString": CONNECTION, "queue": "q", "writerBatch": "3"}
    with pytest.raises(WrongOption, match="writerName"):
        write_options(given)
    assert write_options({**given, "writerName": "w"}).writer_batch == 3
