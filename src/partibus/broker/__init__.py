"""The rules: what Service Bus promises. Told the time; decides, never waits.

Entities and their descriptions, partitioning, fragments, settlement, access. No socket, disk,
clock, thread or log is touched here: the runtime drives these rules, and the stores keep what
they decide.
"""
