"""Fetches the next record batch while Spark is busy with the last one."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def ahead(batches: Generator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches, of which one is on its way at any time. All are fetched by one thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        try:
            coming = thread.submit(next, batches, None)
            while (batch := coming.result()) is not None:
                coming = thread.submit(next, batches, None)
                yield batch
        finally:
            # Behind what is still on its way: who fetches also puts away.
            thread.submit(batches.close)
