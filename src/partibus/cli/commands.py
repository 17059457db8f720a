"""All commands, and how a failure is told.

Every failure that is not our own mistake ends in one line on standard error and an exit code
that tells its kind (docs/OPERATING.md).
"""

from __future__ import annotations

import sys

import click

from partibus.cli.certificates import cert_commands, env_command
from partibus.cli.configuration import config_commands
from partibus.cli.entities import queue_commands, subscription_commands, topic_commands
from partibus.cli.fragments import fragments_command, where_command
from partibus.cli.messages import (
    dlq_commands,
    peek_command,
    receive_command,
    send_command,
)
from partibus.cli.pipeline import pipeline_commands
from partibus.cli.rules import rule_commands
from partibus.cli.serving import node_command, serve_command, version_command
from partibus.client import MessagingError
from partibus.config import ConfigurationError
from partibus.pipeline.jobs.errors import Discrepancy, JobFailed
from partibus.runtime.serving import AddressUnavailable
from partibus.runtime.supervisor import NodesFailed
from partibus.store import StoreError, StoreInUse

# What each kind of failure ends with. The first that fits counts.
EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (ConfigurationError, 3),
    (StoreInUse, 4),
    (StoreError, 5),
    (AddressUnavailable, 6),
    (NodesFailed, 7),
    (MessagingError, 8),
    (JobFailed, 9),
    (Discrepancy, 10),
)


def main() -> None:
    """The console command."""
    try:
        commands()
    except tuple(kind for kind, _ in EXIT_CODES) as error:
        click.echo(f"partibus: {error}", err=True)
        sys.exit(next(code for kind, code in EXIT_CODES if isinstance(error, kind)))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """A message broker for partitioned queues, compatible with Azure Service Bus."""


for _command in (
    serve_command,
    node_command,
    version_command,
    cert_commands,
    env_command,
    config_commands,
    send_command,
    receive_command,
    peek_command,
    dlq_commands,
    queue_commands,
    topic_commands,
    subscription_commands,
    rule_commands,
    fragments_command,
    where_command,
    pipeline_commands,
):
    commands.add_command(_command)
