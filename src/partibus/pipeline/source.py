"""`format("servicebus")`: what Spark asks for a schema, readers and writers.

Options and schemas are checked here, at once; everything else is in the modules of reading and
writing, imported when it is needed.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from partibus.pipeline.options import CONSUME, WrongOption, read_options, write_options
from partibus.pipeline.schema import check_written, chosen_columns, read_schema


class ServiceBusDataSource(DataSource):
    """Queues and subscriptions as tables and streams."""

    @classmethod
    def name(cls) -> str:
        """What `format` names."""
        return "servicebus"

    def schema(self) -> StructType:
        """The columns of who does not choose."""
        return read_schema(read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Everything at once."""
        from partibus.pipeline.reading import BrowsingReader

        options = read_options(self.options)
        if options.mode == CONSUME:
            raise WrongOption("mode 'consume' is for streams (readStream); a batch read browses")
        return BrowsingReader(options, chosen_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """As a stream."""
        from partibus.pipeline.consuming import ConsumingStreamReader
        from partibus.pipeline.reading import BrowsingStreamReader

        options = read_options(self.options)
        kind = ConsumingStreamReader if options.mode == CONSUME else BrowsingStreamReader
        return kind(options, chosen_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A whole DataFrame."""
        from partibus.pipeline.writing import BatchWriter, Sink

        if overwrite:
            raise WrongOption("messages can only be added to an entity: use mode('append')")
        options = write_options(self.options)
        sink = Sink(options.place, check_written(schema, options.columns))
        return BatchWriter(sink, options.writer_name, options.writer_batch)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """A stream."""
        from partibus.pipeline.writing import Sink, StreamWriter

        if overwrite:
            raise WrongOption("messages can only be added to an entity: use outputMode('append')")
        options = write_options(self.options)
        sink = Sink(options.place, check_written(schema, options.columns))
        return StreamWriter(sink, options.writer_name)
