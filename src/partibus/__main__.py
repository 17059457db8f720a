"""`python -m partibus`: the same as the command `partibus`."""

from partibus.cli import main

main()
