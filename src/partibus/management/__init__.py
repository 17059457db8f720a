"""The HTTP door: health, entity management, and message operations to come.

It asks the node below for everything it says; the AMQP door is not known here.
"""
