"""Whatever goes wrong, in whatever order: nothing accepted is lost, nothing completed comes back.

Each seed is a history of two nodes whose disks, hops and processes fail under their clients. A
seed that has failed once is a line in seeds.txt for ever. To try others:

    HYPOTHESIS_PROFILE=night pytest tests/simulation
"""

from __future__ import annotations

import os
import secrets
from functools import partial
from pathlib import Path

import pytest

from partibus.testing.forwarding_simulation import (
    DeadLetterSimulation,
    ForwardingSimulation,
    TopicSimulation,
    ViaSimulation,
)
from partibus.testing.little_room import LITTLE_ROOM
from partibus.testing.loop import VirtualLoop, run
from partibus.testing.session_simulation import SessionSimulation
from partibus.testing.simulation import Simulation

KEPT = [
    int(line.partition("#")[0])
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line.partition("#")[0].strip()
]
NIGHT = os.environ.get("HYPOTHESIS_PROFILE") == "night"
SEEDS = [secrets.randbelow(1 << 32) for _ in range(300)] if NIGHT else range(8)


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LITTLE_ROOM.items():
        monkeypatch.setattr(f"partibus.{name}", value)


@pytest.mark.parametrize("seed", [*KEPT, *SEEDS])
def test_no_history_breaks_a_promise(seed: int, tmp_path: Path) -> None:
    wrong = run(lambda loop: Simulation(loop, tmp_path, seed).run())
    assert not wrong, f"seed {seed} (add it to seeds.txt):\n" + "\n".join(wrong)


@pytest.mark.parametrize("seed", SEEDS)
def test_T6_no_history_breaks_a_session(seed: int, tmp_path: Path) -> None:
    wrong = run(lambda loop: SessionSimulation(loop, tmp_path, seed).run())
    assert not wrong, f"seed {seed}:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "kind", [ForwardingSimulation, DeadLetterSimulation, ViaSimulation, TopicSimulation]
)
@pytest.mark.parametrize("seed", SEEDS if NIGHT else range(4))
def test_F1_T5_no_history_loses_or_doubles_what_is_forwarded(
    seed: int, kind: type[Simulation], tmp_path: Path
) -> None:
    wrong = run(lambda loop: kind(loop, tmp_path, seed).run())
    assert not wrong, f"seed {seed}:\n" + "\n".join(wrong)


async def history(folder: Path, loop: VirtualLoop) -> object:
    simulation = Simulation(loop, folder, 5)
    await simulation.run()
    return simulation.record.lives


def test_the_same_seed_gives_the_same_history(tmp_path: Path) -> None:
    histories = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        histories.append(run(partial(history, folder)))
    assert histories[0] == histories[1]
