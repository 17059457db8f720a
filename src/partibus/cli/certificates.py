"""`partibus cert` and `partibus env`: what clients need to trust and reach the broker."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import BinaryIO

import click

from partibus.cli.options import data_option
from partibus.cli.output import show_one, shown


@click.group("cert")
def cert_commands() -> None:
    """The certificate of the development authority, which clients have to trust for TLS."""


@cert_commands.command("show")
@shown
@data_option
def show_certificate_command(data: Path, output: str) -> None:
    """Say which certificates were made, for which names, and until when they hold."""
    from partibus.runtime.trust import certificates_of, describe_certificates

    if output == "json":
        show_one(certificates_of(data), output)
        return
    for line in describe_certificates(data):
        click.echo(line)


@cert_commands.command("export")
@click.argument("file", type=click.File("wb", atomic=True))
@data_option
def export_certificate_command(file: BinaryIO, data: Path) -> None:
    """Write the authority's certificate (never its key) to FILE; - for standard output."""
    from partibus.runtime.trust import authority_text

    file.write(authority_text(data))


@click.command("env")
@shown
@data_option
def env_command(data: Path, output: str) -> None:
    """Print the variables by which clients reach and trust the broker: eval "$(partibus env)"."""
    from partibus.runtime.trust import client_variables

    variables = client_variables(data)
    if output == "json":
        show_one(variables, output)
        return
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")
