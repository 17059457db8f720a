"""The columns of a message as Spark's types, and the check of a schema that a user gives."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from partibus.pipeline.options import ReadOptions
from partibus.wire.columns import READ_COLUMNS, WRITE_COLUMNS

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
    "map": MapType(StringType(), StringType()),
}


class WrongSchema(ValueError):
    """A column that messages do not have, or of another type."""


def read_schema(options: ReadOptions) -> StructType:
    """All columns that the options leave."""
    left_out = set()
    if not options.include_body:
        left_out.add("body")
    if not options.include_properties:
        left_out.add("applicationProperties")
    return StructType(
        [
            StructField(name, TYPES[kind])
            for name, kind in READ_COLUMNS.items()
            if name not in left_out
        ]
    )


def chosen_columns(schema: StructType) -> list[str]:
    """The columns of a schema that a user chose, which may be fewer than there are."""
    for field in schema.fields:
        kind = READ_COLUMNS.get(field.name)
        if kind is None:
            raise WrongSchema(
                f"messages have no column '{field.name}'; they have {', '.join(READ_COLUMNS)}"
            )
        if field.dataType != TYPES[kind]:
            raise WrongSchema(
                f"column '{field.name}' is {TYPES[kind].simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )
    return [field.name for field in schema.fields]


def check_written(schema: StructType, columns: dict[str, str]) -> dict[str, str]:
    """Which column of a DataFrame becomes what of a message, by the latter.

    Columns that only readers see (`sequenceNumber`) are let be, so that what was read can be
    written again.
    """
    names = {target: columns.get(target, target) for target in WRITE_COLUMNS}
    given = {field.name: field.dataType for field in schema.fields}
    for target, name in names.items():
        if name != target and name not in given:
            raise WrongSchema(f"there is no column '{name}' for {target}; there are {_list(given)}")
    if names["body"] not in given:
        raise WrongSchema(
            f"there is no column 'body'; there are {_list(given)} (see option 'bodyColumn')"
        )
    used = set(names.values()) | set(READ_COLUMNS)
    unknown = [name for name in given if name not in used]
    if unknown:
        raise WrongSchema(
            f"messages have no column '{unknown[0]}'; they have {', '.join(WRITE_COLUMNS)}. "
            "Put other values into the body or into applicationProperties, or drop them"
        )
    found = {target: name for target, name in names.items() if name in given}
    for target, name in found.items():
        allowed = [TYPES[WRITE_COLUMNS[target]]]
        if target == "body":
            allowed.append(StringType())
        kind = given[name]
        if isinstance(kind, MapType):
            kind = MapType(kind.keyType, kind.valueType)
        if kind not in allowed:
            raise WrongSchema(
                f"column '{name}' is {' or '.join(each.simpleString() for each in allowed)}, "
                f"not {given[name].simpleString()}"
            )
    return found


def _list(names: dict[str, DataType]) -> str:
    return ", ".join(names)
