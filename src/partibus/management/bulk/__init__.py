"""The bulk doors: whole fragments read, and whole batches written, as Arrow, for Spark.

Heavy work is done in a process beside the node, which reads the stores' files itself; the node's
loop only passes bytes on. pyarrow is imported in that process alone.
"""
