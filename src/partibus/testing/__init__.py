"""Means of proof, shipped: a namespace for tests, a simulated world, and an outside checker."""
