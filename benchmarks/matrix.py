"""What is measured with the load generator, in which order, and how the rounds are put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks.load.plan import RECEIVE, SEND, Plan
from benchmarks.measure import LoadFailed, Sample, measure
from benchmarks.subjects import CONVENTIONAL, PARTITIONED, Subject

KEYS = 256
# RabbitMQ was fastest with two connections in the few runs that compared them; partibus gets
# more, because each lands on any of its nodes.
CONNECTIONS = {True: 8, False: 2}
IN_FLIGHT = 2000


@dataclass(frozen=True)
class Cell:
    """Messages of one kind to one kind of queue; they are sent, then received and completed."""

    queue: str
    size: int
    keys: int
    pipelined: bool

    @property
    def label(self) -> str:
        kind = self.queue if not self.keys else f"{self.queue}, keyed"
        return f"{kind}, {'1 KB' if self.size == 1000 else f'{self.size} B'}"

    def plan(self, subject: Subject, operation: str, messages: int) -> Plan:
        connections = CONNECTIONS[subject.partitions] if self.pipelined else 1
        window = IN_FLIGHT // connections if self.pipelined else 1
        endpoint = subject.endpoint(self.queue)
        return Plan(endpoint, operation, messages, window, connections, self.size, self.keys)


def cells(*, quick: bool) -> list[Cell]:
    """The rows of the table; the quick form leaves the small messages out."""
    kinds = [(CONVENTIONAL, 0), (PARTITIONED, 0), (PARTITIONED, KEYS)]
    sizes = [1000] if quick else [1000, 100]
    pipelined = [Cell(queue, size, keys, True) for size in sizes for queue, keys in kinds]
    single = [
        Cell(queue, size, 0, False) for size in sizes for queue in (CONVENTIONAL, PARTITIONED)
    ]
    return pipelined + single


@dataclass(frozen=True)
class Result:
    """All rounds of one cell, one operation, one subject."""

    subject: str
    cell: Cell
    operation: str
    samples: list[Sample]

    def median(self, field: str) -> float:
        return float(median(getattr(sample, field) for sample in self.samples))

    def spread(self, field: str) -> tuple[float, float]:
        values = [getattr(sample, field) for sample in self.samples]
        return min(values), max(values)


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    rounds: int
    pipelined: int
    single: int


Say = Callable[[str], None]


def run(subjects: list[Subject], wanted: list[Cell], scale: Scale, say: Say) -> list[Result]:
    """Measure all cells, round by round; in each the subjects follow one another directly."""
    found: dict[tuple[str, Cell, str], list[Sample]] = {}
    warm_up = Cell(CONVENTIONAL, 1000, 0, True)
    for subject in subjects:
        _pair(subject, warm_up, scale.pipelined // 4)
    for number in range(scale.rounds):
        for cell in wanted:
            turn = number % len(subjects)
            for subject in subjects[turn:] + subjects[:turn]:
                if cell.queue == PARTITIONED and not subject.partitions:
                    continue
                messages = scale.pipelined if cell.pipelined else scale.single
                for operation, sample in _pair(subject, cell, messages).items():
                    found.setdefault((subject.name, cell, operation), []).append(sample)
                    say(_line(number, subject, cell, operation, sample))
    return [Result(*key, samples) for key, samples in found.items()]


def _pair(subject: Subject, cell: Cell, messages: int) -> dict[str, Sample]:
    """Send, then receive what was sent, so that the queue is empty again."""
    done: dict[str, Sample] = {}
    for operation in (SEND, RECEIVE):
        done[operation] = measure(subject, cell.plan(subject, operation, messages))
        if done[operation].refused:
            raise LoadFailed(f"{subject.name} refused {done[operation].refused} messages")
    return done


def _line(number: int, subject: Subject, cell: Cell, operation: str, sample: Sample) -> str:
    manner = "pipelined" if cell.pipelined else "one in flight"
    return (
        f"{number + 1} {subject.name:28} {cell.label:26} {manner:13} {operation:8}"
        f"{sample.rate:8.0f}/s {sample.cpu_us:6.1f} us"
        f"  p50 {sample.p50_ms:8.2f} p99 {sample.p99_ms:8.2f} ms"
        f"  load {sample.generator_us:5.2f} us, others {sample.other_load:.2f}"
    )
