"""The rules: what a Service Bus broker promises about entities, fragments, keys and access.

Decides and never waits: it is told the time, given its randomness, and asked what happens next.
No socket, disk, thread or log is known here, and no AMQP link.
"""
