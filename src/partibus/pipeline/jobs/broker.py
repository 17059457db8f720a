"""Which broker a job works with, and what the `servicebus` format needs to find an entity there."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from partibus.client.administration import Administration
from partibus.pipeline.options import Place


@dataclass(frozen=True, slots=True)
class Broker:
    """A namespace and the way to it. The connection string is not shown."""

    connection_string: str = field(repr=False)
    # Where executors reach it by another address than the connection string's.
    http_endpoint: str = ""
    ca_certificate: str = ""

    def options(self, entity: str) -> dict[str, str]:
        """For `format("servicebus")`; the entity as clients name it, sub-queue included."""
        found = {"connectionString": self.connection_string, "queue": entity}
        if self.http_endpoint:
            found["httpEndpoint"] = self.http_endpoint
        if self.ca_certificate:
            found["caCertificate"] = self.ca_certificate
        return found

    def place(self, entity: str) -> Place:
        """For a client of the bulk doors."""
        return Place(self.connection_string, entity, self.http_endpoint, self.ca_certificate)

    def administration(self) -> Administration:
        """A client for its entities."""
        return Administration.from_connection_string(
            self.connection_string,
            ssl_context=ssl.create_default_context(cafile=self.ca_certificate)
            if self.ca_certificate
            else None,
        )
