"""partibus: a message broker for partitioned queues, wire-compatible with Azure Service Bus.

The rooms and what each is for: docs/ARCHITECTURE.md. Nothing is imported here, so that taking
one room (the codec, the testing tools) does not bring the others.
"""

__version__ = "0.1.0.dev0"
