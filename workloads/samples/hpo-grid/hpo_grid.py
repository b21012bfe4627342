"""Search the best settings for the network of `ddp-digits`: every point of a grid is a trial, and the pods share the trials.

Each pod takes the next trial that nobody has taken until none is left, so a slow one holds up nobody. Rank 0 keeps the list
(PyTorch's TCPStore), does trials like the others and names the best at the end. A trial whose pod was lost is done again by
rank 0. Equal trials give equal results: weights and order come from the same seed.

One process per pod. The training operator sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Runs on PyTorch 1.13 and 2.x.

Settings (environment):
    RATES     learning rates, default 0.0003,0.002,0.02
    BATCHES   images per step, default 32,128
    EPOCHS    passes over the training data of each trial, default 6
    SEED      of the weights and of the order of the images, default 0
    DATA      digits.csv.gz of scikit-learn, default beside this file
    TIMEOUT   seconds without a result before rank 0 takes a trial for lost, default 120

Standard output is JSON lines. Every trial writes `{"metric": "trial_accuracy", "value", "epoch", "step", "rate", "batch"}` (the
step is the trial's number) from the rank that did it; rank 0 at the end accuracy and best_trial, and an event "best" with
that trial's settings.
"""

import itertools
import json
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from ddp_digits import TEST_IMAGES, accuracy, make_model, read_digits, say
from torch import nn

EPOCHS = int(os.environ.get("EPOCHS", "6"))
SEED = int(os.environ.get("SEED", "0"))
RATES = os.environ.get("RATES", "0.0003,0.002,0.02")
BATCHES = os.environ.get("BATCHES", "32,128")
TIMEOUT = float(os.environ.get("TIMEOUT", "120"))

Trial = tuple[float, int]
"""Learning rate and images per step."""


def grid() -> list[Trial]:
    """Every trial; its place is its number."""
    return list(itertools.product(map(float, RATES.split(",")), map(int, BATCHES.split(","))))


def run_trial(trial: Trial, images: torch.Tensor, digits: torch.Tensor) -> float:
    """Train with these settings. Returns the accuracy on the test images."""
    rate, batch = trial
    torch.manual_seed(SEED)
    network = make_model()
    optimizer, loss_of = torch.optim.Adam(network.parameters(), lr=rate), nn.CrossEntropyLoss()
    shuffle = torch.Generator().manual_seed(SEED)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(images) - TEST_IMAGES, generator=shuffle).split(batch):
            optimizer.zero_grad()
            loss_of(network(images[TEST_IMAGES + chosen]), digits[TEST_IMAGES + chosen]).backward()
            optimizer.step()
    return accuracy(network, images[:TEST_IMAGES], digits[:TEST_IMAGES])


def best(results: dict[int, float]) -> int:
    """Number of the trial with the highest accuracy; of equal ones the first."""
    return max(results, key=lambda number: (results[number], -number))


class Board:
    """The list of trials that all ranks share."""

    def __init__(self, store: dist.Store) -> None:
        self._store = store

    def take(self) -> int:
        """Number of a trial that nobody has taken."""
        return int(self._store.add("taken", 1)) - 1

    def put(self, number: int, value: float) -> None:
        self._store.set(f"result-{number}", json.dumps(value))

    def result(self, number: int, seconds: float) -> float | None:
        """A trial's result; None if it is not there in time."""
        try:
            self._store.wait([f"result-{number}"], timedelta(seconds=seconds))
        except RuntimeError:
            return None
        return float(json.loads(self._store.get(f"result-{number}")))

    def leave(self) -> None:
        """Say that this rank needs the list no more."""
        self._store.add("left", 1)

    def wait_until_left(self, ranks: int, seconds: float) -> None:
        """The store ends with rank 0's process: wait for the others, but not for lost ones."""
        end = time.monotonic() + seconds
        while self._store.add("left", 0) < ranks and time.monotonic() < end:
            time.sleep(0.2)


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, rank == 0, timedelta(seconds=TIMEOUT)
    )
    say(event="started", rank=rank, world=world, torch=torch.__version__)
    board, trials = Board(store), grid()
    images, digits = read_digits(os.environ.get("DATA", Path(__file__).with_name("digits.csv.gz")))

    def do(number: int) -> float:
        rate, batch = trials[number]
        value = run_trial(trials[number], images, digits)
        say(metric="trial_accuracy", value=round(value, 4), epoch=EPOCHS, step=number, rate=rate, batch=batch)
        board.put(number, value)
        return value

    while (number := board.take()) < len(trials):
        do(number)
    if rank:
        board.leave()
        return
    results = {}
    for number in range(len(trials)):
        value = board.result(number, TIMEOUT)
        results[number] = do(number) if value is None else value
    first = best(results)
    rate, batch = trials[first]
    say(event="best", trial=first, rate=rate, batch=batch, accuracy=round(results[first], 4))
    say(metric="accuracy", value=round(results[first], 4), epoch=EPOCHS, step=first)
    say(metric="best_trial", value=first, epoch=EPOCHS, step=first)
    board.wait_until_left(world - 1, TIMEOUT / 4)


if __name__ == "__main__":
    main()
