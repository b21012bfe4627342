"""One network cut in equal stages, for the samples that train it in different ways and must get equal losses.

Residual blocks of equal size, so that every stage has the same work. Also `Timeline`: how long ranks are idle, worked out so
that it does not depend on how many ranks share a core. Runs on PyTorch 1.13 and 2.x.
"""

import os
import time
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

STAGES = 4
WIDTH = 192
BLOCKS = 2
"""Residual blocks of a stage."""

EPOCHS = int(os.environ.get("EPOCHS", "12"))
BATCH = int(os.environ.get("BATCH", "256"))
MICRO = int(os.environ.get("MICRO", "8"))
SEED = int(os.environ.get("SEED", "0"))
RATE, MOMENTUM = 0.05, 0.9

T = TypeVar("T")


class Block(nn.Module):  # type: ignore[misc]
    """Two linear layers and a way past them; it begins as almost nothing but the way past."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.normal_(self.second.weight, std=0.1 / width**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        changed: torch.Tensor = x + self.second(torch.relu(self.first(x)))
        return changed


def make_stages() -> list[nn.Module]:
    """All stages, with the same weights in every process that makes them."""
    torch.manual_seed(SEED)
    stages = [[Block(WIDTH) for _ in range(BLOCKS)] for _ in range(STAGES)]
    first, last = nn.Linear(64, WIDTH), nn.Linear(WIDTH, 10)
    return [
        nn.Sequential(*([first] if index == 0 else []), *blocks, *([last] if index == STAGES - 1 else []))
        for index, blocks in enumerate(stages)
    ]


def make_optimizer(stage: nn.Module) -> torch.optim.Optimizer:
    """Gradient descent works on every weight by itself, so a stage may be moved on without the others."""
    return torch.optim.SGD(stage.parameters(), lr=RATE, momentum=MOMENTUM)


def loss_sum(outputs: torch.Tensor, digits: torch.Tensor) -> torch.Tensor:
    """Cross-entropy summed over the images: sums of parts of a batch add up to the batch, however it was cut."""
    return nn.functional.cross_entropy(outputs, digits, reduction="sum")


class Timeline:
    """Idle time of ranks, from how long each piece of work takes and from what it has to wait for.

    A piece (one micro-batch forward or backward through a stage) begins when its rank has ended the piece before and its
    input is there, and ends so many seconds later as it took. Those seconds are measured: of this thread's processor time,
    since ranks that share a core take turns on it; where there is a card, on the clock. So the idle share is that of ranks
    which have a core or card each, on any machine. The wall clock's own idle share is measured beside it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.now = 0.0
        """When this rank's last piece ended, in seconds from the start of the step."""
        self._busy = self._busy_wall = 0.0
        self._begun = time.perf_counter()
        self._totals = torch.zeros(4, dtype=torch.float64)

    def work(self, piece: Callable[[], T], ready: float = 0.0) -> T:
        """Do a piece of work whose input was there at `ready`."""
        wall, began = time.perf_counter(), self._clock()
        result = piece()
        took = self._clock() - began
        self._busy_wall += time.perf_counter() - wall
        self._busy += took
        self.now = max(self.now, ready) + took
        return result

    def end_step(self) -> None:
        """Close a step: its length is that of the rank that ended last."""
        wall = time.perf_counter() - self._begun
        longest = torch.tensor([self.now, wall], dtype=torch.float64)
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        self._totals += torch.tensor([self._busy, longest[0], self._busy_wall, longest[1]], dtype=torch.float64)
        self.now = self._busy = self._busy_wall = 0.0
        dist.barrier()
        self._begun = time.perf_counter()

    def idle_shares(self) -> tuple[float, float]:
        """The share of all ranks' time in which they had nothing to do: by the time line, and by the wall clock."""
        totals = self._totals.clone()
        dist.all_reduce(totals)
        busy, length, busy_wall, wall = totals.tolist()
        return 1 - busy / length, 1 - busy_wall / wall

    def _clock(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            return time.perf_counter()
        return time.thread_time()
