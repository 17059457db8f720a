"""The AMQP door: sockets, links, tokens and requests, as the vendor's clients expect them.

Bytes of a connection go through the engine and come out as events; links are bound to entities
of the node. What a message is worth and where it goes is decided in the rooms below.
"""
