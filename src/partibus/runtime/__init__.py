"""Where rules meet time and disk: group commits, timers, the hop between nodes, supervision.

The doors (gateway, management) talk to a Node; the rules (broker) are driven from here and
nowhere else. Waiting happens here; deciding does not.
"""
