"""Values and events: the AMQP 1.0 state machines of connection, session, link and SASL.

Bytes in, events out; commands in, bytes out. Pure: time is an argument, and waiting is
`next_deadline_ms()` with `advance(now_ms)`. What an address or a message means is not known here.
"""
