"""Message operations over HTTP (SPEC 7.5): send, receive, settle and renew.

Requests become questions to the node below; the rules are the broker's.
"""
