from __future__ import annotations

import pytest

from partibus.wire.columns import READ_COLUMNS


@pytest.mark.usefixtures("spark")
def test_S1_who_does_not_choose_gets_every_column() -> None:
    from partibus.pipeline.options import Place, ReadOptions
    from partibus.pipeline.schema import read_schema

    place = Place("", "q")
    assert read_schema(ReadOptions(place)).fieldNames() == list(READ_COLUMNS)
    without = read_schema(ReadOptions(place, include_body=False, include_properties=False))
    assert not {"body", "applicationProperties"} & set(without.fieldNames())


@pytest.mark.parametrize(
    ("written", "columns", "text"),
    [
        ("messageId STRING", {}, "no column 'body'"),
        ("body STRING, colour STRING", {}, "no column 'colour'"),
        ("body STRING, messageId INT", {}, "column 'messageId' is string, not int"),
        ("body STRING", {"sessionId": "customer"}, "no column 'customer' for sessionId"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_S1_what_cannot_be_written_is_said(
    written: str, columns: dict[str, str], text: str
) -> None:
    from pyspark.sql.types import StructType

    from partibus.pipeline.schema import WrongSchema, check_written

    with pytest.raises(WrongSchema, match=text):
        check_written(StructType.fromDDL(written), columns)


@pytest.mark.usefixtures("spark")
def test_S1_what_was_read_can_be_written_again() -> None:
    from pyspark.sql.types import StructType

    from partibus.pipeline.options import Place, ReadOptions
    from partibus.pipeline.schema import check_written, read_schema

    found = check_written(read_schema(ReadOptions(Place("", "q"))), {})
    assert {"body", "messageId", "sessionId", "applicationProperties"} <= found.keys()
    assert "sequenceNumber" not in found
    named = check_written(
        StructType.fromDDL("body STRING, customer STRING"), {"sessionId": "customer"}
    )
    assert named["sessionId"] == "customer"
