"""The load generator: one process, raw sockets, frames encoded beforehand.

It must cost far less than the broker it drives. Connections are opened with the codec of
partibus; after that no message is encoded or decoded one by one. Run as `python -m
benchmarks.load`; `plan` says what it is told and what it answers.
"""
