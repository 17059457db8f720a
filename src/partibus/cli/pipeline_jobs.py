"""All jobs of `partibus pipeline` together; the pipelines that a broker runs are in pipelines."""

from __future__ import annotations

from partibus.cli.pipeline import pipeline_commands
from partibus.cli.pipeline_checks import audit_command, plan_command, report_command
from partibus.cli.pipeline_migration import migrate_command

__all__ = ["pipeline_commands"]

for _command in (audit_command, plan_command, report_command, migrate_command):
    pipeline_commands.add_command(_command)
