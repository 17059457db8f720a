"""The command line: what a person types, and what is told in return.

Each module holds one group of commands and imports what it needs when it is used, so that
`partibus version` is as quick as it looks. Nothing is decided here: the commands ask the rooms
below, and those for a running broker its doors, as any client does.
"""

from partibus.cli.commands import main

__all__ = ["main"]
