"""Bytes and values: AMQP 1.0 types, frames, performatives and message sections.

Pure: nothing here knows a socket, a clock or the rules of a broker. The modules on the path of
every message are written so that mypyc compiles them to native code; they run uncompiled as well.
"""
