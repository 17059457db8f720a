"""The pytest plugin: a broker for the tests of applications, as a fixture.

pytest imports this module wherever partibus is installed, so it imports nothing heavy at the top.
"""
