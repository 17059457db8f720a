"""What operators do that the service's own interface has no words for, under `/$partibus/`.

JSON in and out: renaming, swapping, emptying, and access rules one by one.
"""
