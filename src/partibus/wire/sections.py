"""The sections of a message (part 3.2 of the standard), as the rest of the broker sees them.

Taking one in is in `message_scan`, changing one in `message_patch`, giving one out in
`message_build`; import from here.
"""

from __future__ import annotations

from partibus.wire.message_build import delivery, with_omitted_body_size
from partibus.wire.message_patch import (
    with_application_properties,
    with_message_id,
    with_properties,
    without_body,
)
from partibus.wire.message_scan import BATCH_FORMAT, Sections, scan, split_batch, text_of_id

__all__ = [
    "BATCH_FORMAT",
    "Sections",
    "delivery",
    "scan",
    "split_batch",
    "text_of_id",
    "with_application_properties",
    "with_message_id",
    "with_omitted_body_size",
    "with_properties",
    "without_body",
]
