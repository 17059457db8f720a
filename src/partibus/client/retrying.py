"""When an operation is tried again, and after how long."""

from __future__ import annotations

from dataclasses import dataclass

from partibus.client.errors import MessagingError, ServerBusy

# A service that says it is busy is left alone for longer (SPEC 6.13).
BUSY_DELAY_S = 4.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """So many attempts in all, with a pause that doubles; the operation time-out still holds."""

    attempts: int = 4
    delay_s: float = 0.8
    delay_s_max: float = 30.0
    busy_delay_s: float = BUSY_DELAY_S

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.delay_s < 0 or self.delay_s_max < self.delay_s:
            raise ValueError("at least one attempt, and pauses that are not negative")

    def pause_s(self, error: MessagingError, attempt: int) -> float | None:
        """How long to wait after the attempt (the first is 0) that failed; None to give up."""
        if not error.is_retryable or attempt + 1 >= self.attempts:
            return None
        pause: float = self.delay_s * 2.0**attempt
        if isinstance(error, ServerBusy):
            pause = max(pause, self.busy_delay_s)
        return min(pause, self.delay_s_max)
