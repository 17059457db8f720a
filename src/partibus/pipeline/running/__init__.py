"""Runs the pipelines of a namespace: one process, one Spark session, a query for each of them.

It is started and kept alive by `partibus serve`, is a client of the broker as any other, and tells
how its pipelines are by the files that partibus.pipeline_files describes.
"""
