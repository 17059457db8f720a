"""Found by Spark under its name: `spark.read.format("servicebus")`."""

from partibus.pipeline.source import ServiceBusDataSource as DefaultSource

__all__ = ["DefaultSource"]
