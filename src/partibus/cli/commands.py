"""All commands, and how a failure is told.

Every failure that is not our own mistake ends in one line on standard error and an exit code
that tells its kind (docs/OPERATING.md). A command's module is loaded when the command is used:
`partibus serve` and its nodes need none of the others.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

# What each kind of failure ends with, by where it is defined. The first that fits counts.
EXIT_CODES = {
    "partibus.config:ConfigurationError": 3,
    "partibus.store:StoreInUse": 4,
    "partibus.store:StoreError": 5,
    "partibus.runtime.serving:AddressUnavailable": 6,
    "partibus.runtime.supervisor:NodesFailed": 7,
    "partibus.client.errors:MessagingError": 8,
    "partibus.pipeline.jobs.errors:JobFailed": 9,
    "partibus.pipeline.jobs.errors:Discrepancy": 10,
}

# Where each command is found, in the order of --help.
PLACES = {
    "serve": "serving:serve_command",
    "node": "serving:node_command",
    "pipelines": "serving:pipelines_command",
    "version": "serving:version_command",
    "cert": "certificates:cert_commands",
    "env": "certificates:env_command",
    "config": "configuration:config_commands",
    "send": "messages:send_command",
    "receive": "messages:receive_command",
    "peek": "messages:peek_command",
    "dlq": "messages:dlq_commands",
    "queue": "entities:queue_commands",
    "topic": "entities:topic_commands",
    "subscription": "entities:subscription_commands",
    "rule": "rules:rule_commands",
    "access-rule": "access:access_commands",
    "fragments": "fragments:fragments_command",
    "where": "fragments:where_command",
    "reader": "readers:reader_commands",
    "staged": "readers:staged_command",
    "pipeline": "pipelines:pipeline_commands",
}


class Commands(click.Group):
    """Commands that are loaded when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them."""
        place = PLACES.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command = getattr(import_module(f"partibus.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """A message broker for partitioned queues and topics, compatible with Azure Service Bus."""


def main() -> None:
    """The console command."""
    try:
        commands()
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        click.echo(f"partibus: {error}", err=True)
        sys.exit(code)


def exit_code(error: Exception) -> int | None:
    """What a failure ends with; None where it is our own mistake."""
    for place, code in EXIT_CODES.items():
        module, _, name = place.partition(":")
        # Who has not loaded the module cannot have raised its error.
        if isinstance(error, getattr(sys.modules.get(module), name, ())):
            return code
    return None
