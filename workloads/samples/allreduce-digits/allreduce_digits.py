"""Train a small network on the scikit-learn digits with ring all-reduce over MPI.

Started by mpirun, one rank per worker pod. After every step each rank holds the sum of all gradients: it goes once round the
ring in parts that are summed up on the way, and once more so that all have it. A rank sends 2 (n-1)/n of the weights a step,
however many ranks there are; there is no server. `ps-digits` trains the same network on the same batches over a parameter
server.

MPI ends every rank when one is lost. Each keeps its own checkpoint after every epoch, in /tmp of its pod, so when mpirun is
started again all go on from the newest one that is left.

Settings (environment):
    EPOCHS        passes over the training data, default 30
    BATCH         images per step of all ranks together, default 64
    RATE          step of the gradient descent, default 0.2
    SEED          of the weights and of the order of the images, default 0
    DATA          digits.csv.gz of scikit-learn, default beside this file
    CHECKPOINTS   folder of this rank's checkpoint, default /tmp/checkpoints
    LOSE_AT       epoch after which the last rank kills itself, once per pod; default 0, never

Standard output is JSON lines, all but "started" from rank 0: `{"metric": "loss", "value", "epoch", "step"}` after every epoch
and at the end accuracy, steps_per_second, bytes_per_step (sent by all ranks), busiest_bytes_per_step (sent and received by
the one that moves most) and workers.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import digits
import mlp
import numpy as np
from digits import Floats, say

EPOCHS = int(os.environ.get("EPOCHS", "30"))
BATCH = int(os.environ.get("BATCH", "64"))
RATE = float(os.environ.get("RATE", "0.2"))
SEED = int(os.environ.get("SEED", "0"))
LOSE_AT = int(os.environ.get("LOSE_AT", "0"))
FOLDER = Path(os.environ.get("CHECKPOINTS", "/tmp/checkpoints"))


class Link(Protocol):
    """This rank's place in the ring."""

    rank: int
    size: int

    def exchange(self, out: Floats, into: Floats) -> None:
        """Send to the next rank and fill `into` from the one before, both at once."""


@dataclass
class Moved:
    """What this rank has moved."""

    sent: int = 0
    received: int = 0


def all_reduce(link: Link, vector: Floats, moved: Moved) -> None:
    """Replace every rank's vector by the sum of all, by two turns round the ring.

    First turn: part p starts at rank p and is added to at every stop, so that rank p-1 ends with its sum. Second turn: the
    sums go round. Every rank sends 2 (n-1) parts of 1/n of the vector.
    """
    size, rank = link.size, link.rank
    parts = np.array_split(vector, size)  # views of the vector
    arrived = np.empty(max(part.size for part in parts), np.float32)
    for turn, hop in ((turn, hop) for turn in (0, 1) for hop in range(size - 1)):
        out = parts[(rank - hop + turn) % size]
        into = parts[(rank - hop - 1 + turn) % size]
        link.exchange(out, arrived[: into.size])
        if turn == 0:
            into += arrived[: into.size]
        else:
            into[:] = arrived[: into.size]
        moved.sent += out.nbytes
        moved.received += into.nbytes


def train_epoch(
    link: Link, weights: Floats, images: Floats, labels: digits.Whole, epoch: int, moved: Moved
) -> tuple[float, int]:
    """One pass. Returns the mean loss over all ranks and the number of steps."""
    total, steps = 0.0, 0
    message = np.empty(mlp.SIZE + 1, np.float32)  # the gradient, and at its end the loss
    for batch in digits.batches(len(images), BATCH, epoch, SEED):
        own = digits.part(batch, link.rank, link.size)
        message[:-1], message[-1] = mlp.gradient_sum(weights, images[own], labels[own])
        all_reduce(link, message, moved)
        weights -= np.float32(RATE / len(batch)) * message[:-1]
        total += float(message[-1]) / len(batch)
        steps += 1
    return total / max(steps, 1), steps


class Checkpoint:
    """This rank's file. Replaced whole, so that a kill at any moment leaves the last good one."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = folder / f"rank-{rank}.npz"
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, weights: Floats, epoch: int, step: int, loss: float) -> None:
        half = self.path.with_suffix(".half.npz")
        np.savez(half, weights=weights, progress=np.array([epoch, step, SEED, BATCH]), loss=np.array(loss))
        half.replace(self.path)

    def read(self) -> tuple[Floats, int, int, float] | None:
        """Weights, epoch, step and the epoch's loss; None if there is none of these settings, or of a run that was finished."""
        if not self.path.is_file():
            return None
        with np.load(self.path) as kept:
            epoch, step, seed, batch = (int(number) for number in kept["progress"])
            if (seed, batch) != (SEED, BATCH) or epoch >= EPOCHS:
                return None
            return kept["weights"], epoch, step, float(kept["loss"])


def lose(rank: int, size: int, epoch: int) -> None:
    """Where the settings ask for it: the last rank dies as if its machine had, once per pod."""
    marker = FOLDER / "lost"
    if epoch == LOSE_AT and rank == size - 1 and not marker.exists():
        marker.touch()
        say(event="lost", rank=rank, epoch=epoch)
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    class Ring:
        """The ring over MPI."""

        rank, size = world.Get_rank(), world.Get_size()

        def exchange(self, out: Floats, into: Floats) -> None:
            world.Sendrecv(out, (self.rank + 1) % self.size, recvbuf=into, source=(self.rank - 1) % self.size)

    link = Ring()
    say(event="started", rank=link.rank, world=link.size, host=MPI.Get_processor_name())
    images, labels, test_images, test_labels = digits.train_and_test()
    checkpoint = Checkpoint(FOLDER, link.rank)
    weights, first, step = mlp.first_weights(SEED), 0, 0
    own = checkpoint.read()
    newest = max(world.allgather((own[1] if own else 0, -link.rank)))
    if newest[0]:
        weights, first, step, loss = world.bcast(own, root=-newest[1])
        if link.rank == 0:
            say(event="resumed", epoch=first, step=step)
            # Once more: rank 0 may have been ended between another rank's checkpoint and its own word.
            say(metric="loss", value=round(loss, 6), epoch=first, step=step)
    moved, begun, done = Moved(), time.monotonic(), 0
    for epoch in range(first + 1, EPOCHS + 1):
        loss, steps = train_epoch(link, weights, images, labels, epoch, moved)
        step, done = step + steps, done + steps
        if link.rank == 0:
            say(metric="loss", value=round(loss, 6), epoch=epoch, step=step)
        checkpoint.save(weights, epoch, step, loss)
        lose(link.rank, link.size, epoch)
    seconds = time.monotonic() - begun
    sent = world.reduce(moved.sent)
    busiest = world.reduce(moved.sent + moved.received, op=MPI.MAX)
    if link.rank == 0:
        value = mlp.accuracy(weights, test_images, test_labels)
        say(metric="accuracy", value=round(value, 4), epoch=EPOCHS, step=step)
        say(metric="steps_per_second", value=round(done / seconds, 2), epoch=EPOCHS, step=step)
        say(metric="bytes_per_step", value=round(sent / done), epoch=EPOCHS, step=step)
        say(metric="busiest_bytes_per_step", value=round(busiest / done), epoch=EPOCHS, step=step)
        say(metric="workers", value=link.size, epoch=EPOCHS, step=step)


if __name__ == "__main__":
    main()
