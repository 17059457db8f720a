"""Gets the pipelines of a namespace ready to run: their files, their key, their command.

They run in a process of their own on Spark, which is a client of the broker with a key that may
listen and send and nothing else. What they do is not known here.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from partibus.broker.access import AccessRule, Right
from partibus.broker.errors import Refusal
from partibus.broker.pipelines import PipelineDescription
from partibus.config import Configuration, ConfigurationError, ServeSettings
from partibus.pipeline_files import Declared, PipelineFiles
from partibus.runtime.endpoints import Endpoints
from partibus.runtime.node_process import Command
from partibus.store.catalog import Catalog
from partibus.store.configuration import declared_pipelines

log = logging.getLogger(__name__)

# The namespace's access rule that pipelines use.
PIPELINES_RULE = "PartibusPipelines"
RIGHTS = Right.LISTEN | Right.SEND
INSTALLING = "pip install 'partibus[spark]'"
_NEEDED = ("pyspark", "pyarrow")


def pipelines_of(configuration: Configuration | None) -> tuple[PipelineDescription, ...]:
    """The pipelines that a configuration declares; refused where there is no Spark to run them."""
    if configuration is None or not configuration.pipelines:
        return ()
    pipelines = declared_pipelines(configuration)
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"{configuration.path}.Pipelines",
            f"pipelines run on Spark, and {' and '.join(missing)} is not installed: {INSTALLING}",
        )
    return pipelines


def write_pipelines(
    settings: ServeSettings,
    pipelines: tuple[PipelineDescription, ...],
    endpoints: Endpoints,
    key: str,
) -> None:
    """Write down what the process needs to know, or that there is nothing to run."""
    files = PipelineFiles(settings.data)
    if pipelines:
        assert settings.config is not None
        files.declare(
            Declared(
                pipelines=pipelines,
                connection_string=endpoints.connection_string(key, PIPELINES_RULE),
                python_path=str(settings.config.absolute().parent),
                log_level=settings.log_level,
                log_format=settings.log_format,
            )
        )
    else:
        files.forget()
    for each in files.left_over():
        log.warning(
            "pipeline is not declared any more, but messages of its source are kept for it; if it "
            "does not come back: partibus pipeline remove %s (source=%s reader=%s)",
            each.pipeline, each.source, each.reader,
        )  # fmt: skip


def pipelines_key(catalog_path: Path, new_key: Callable[[], str]) -> str:
    """The key of the pipelines' own access rule, which is made where there is none."""
    catalog = Catalog.open(catalog_path)
    try:
        rules = {each.name: each for each in catalog.load().rules_of()}
        found = rules.get(PIPELINES_RULE)
        if found is None or found.rights != RIGHTS:
            found = AccessRule(PIPELINES_RULE, new_key(), new_key(), RIGHTS)
            catalog.put_access_rule(found)
    except Refusal as refusal:
        raise ConfigurationError(
            "Pipelines", f"their access rule {PIPELINES_RULE} cannot be made: {refusal}"
        ) from refusal
    finally:
        catalog.close()
    return found.primary_key


def pipelines_command(data: Path, lifeline: Callable[[], int]) -> Command:
    """How the process is started."""

    def with_status(status_fd: int) -> list[str]:
        return [
            *(sys.executable, "-m", "partibus", "pipelines", str(data.absolute())),
            *(str(status_fd), str(lifeline())),
        ]

    return with_status
