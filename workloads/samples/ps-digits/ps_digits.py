"""Train a small network on the scikit-learn digits over a parameter server: the twin of `allreduce-digits`.

The same network, batches and gradient descent; only the exchange differs. The server holds the weights. In every step each
worker sends it the gradient of its part of the batch and gets the new weights back, so the server moves 2 n times the
weights with n workers while a worker moves 2. The server waits for all workers of a step, so the result is that of one
process but for rounding.

A worker that is lost is left out from the next step on and its part goes to the others; started again, it joins in at the
next step, or is told that all is done. A server that is lost goes on from its checkpoint when it is started again, and the
workers wait for it.

The training operator sets TF_CONFIG with the addresses of PS (one) and Worker; nothing else of TensorFlow is used.

Settings (environment):
    EPOCHS        passes over the training data, default 30
    BATCH         images per step of all workers together, default 64
    RATE          step of the gradient descent, default 0.2
    SEED          of the weights and of the order of the images, default 0
    DATA          digits.csv.gz of scikit-learn, default beside this file
    CHECKPOINTS   folder of the server's checkpoint, default /checkpoints
    LOSE_AT       epoch after which the last worker kills itself, once per pod; default 0, never
    TIMEOUT       seconds that a worker looks for the server, and the server waits for the first workers and, when all is
                  done, for those that were lost; default 120

Standard output is JSON lines. The server writes `{"metric": "loss", "value", "epoch", "step"}` after every epoch and at the
end accuracy, steps_per_second, bytes_per_step (sent by all processes), busiest_bytes_per_step (sent and received by the one
that moves most: the server) and workers. Lines with "event" tell who joined and who was lost.
"""

import json
import os
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import digits
import mlp
import numpy as np
from digits import Floats, say

EPOCHS = int(os.environ.get("EPOCHS", "30"))
BATCH = int(os.environ.get("BATCH", "64"))
RATE = float(os.environ.get("RATE", "0.2"))
SEED = int(os.environ.get("SEED", "0"))
LOSE_AT = int(os.environ.get("LOSE_AT", "0"))
TIMEOUT = float(os.environ.get("TIMEOUT", "120"))
CHECKPOINTS = os.environ.get("CHECKPOINTS", "/checkpoints")

ORDER = struct.Struct("!iiii")
"""What the server sends before the weights: epoch, step of the epoch, the worker's place, how many share the step."""

WAIT = 0.5


class Order(NamedTuple):
    """A step to compute; epoch 0 says that all is done."""

    epoch: int
    step: int
    position: int
    parts: int


def send(link: socket.socket, head: bytes, vector: Floats) -> int:
    """Send a message. Returns its bytes."""
    message = head + vector.tobytes()
    link.sendall(message)
    return len(message)


def receive(link: socket.socket, head: int, vector: Floats) -> bytes:
    """Fill the vector from a message and return what came before it.

    Raises:
        ConnectionError: the other side is gone.
    """
    first = _exactly(link, memoryview(bytearray(head)))
    _exactly(link, vector.data.cast("B"))
    return bytes(first)


def _exactly(link: socket.socket, room: memoryview) -> memoryview:
    filled = 0
    while filled < len(room):
        count = link.recv_into(room[filled:])
        if count == 0:
            raise ConnectionError("the other side closed the connection")
        filled += count
    return room


@dataclass
class Worker:
    """A worker as the server knows it."""

    link: socket.socket
    name: str


@dataclass
class Server:
    """The weights, and the workers that train them."""

    listener: socket.socket
    expected: int
    weights: Floats
    epoch: int = 1
    step: int = 0
    """Of all epochs."""
    workers: list[Worker] = field(default_factory=list)
    sent: int = 0
    received: int = 0

    def train(self, images: int, save: "Checkpoint") -> int:
        """All epochs. Returns the steps done by this process."""
        done = 0
        for epoch in range(self.epoch, EPOCHS + 1):
            total, steps = 0.0, images // BATCH
            for number in range(steps):
                total += self.one_step(Order(epoch, number, 0, 0))
                self.step += 1
            done += steps
            say(metric="loss", value=round(total / max(steps, 1), 6), epoch=epoch, step=self.step)
            save.write(self.weights, epoch, self.step)
        self._end(self.workers)
        return done

    def dismiss(self) -> None:
        """Tell those who were lost and come back only now that all is done: they would look for the server in vain."""
        end = time.monotonic() + TIMEOUT
        while len(self.workers) < self.expected and time.monotonic() < end:
            known = len(self.workers)
            self.join(wait=WAIT)
            self._end(self.workers[known:])

    def _end(self, workers: list[Worker]) -> None:
        for worker in list(workers):
            self._order(worker, Order(0, 0, 0, 0))

    def one_step(self, order: Order) -> float:
        """One step of all workers that are there; one that is lost meanwhile leaves its part undone. Returns the loss."""
        while True:
            self.join(wait=0)
            if not self.workers:
                self.wait_for_workers(1)
            parts = len(self.workers)
            for position, worker in enumerate(list(self.workers)):
                self._order(worker, order._replace(position=position, parts=parts))
            total, count, loss = np.zeros(mlp.SIZE, np.float32), 0, 0.0
            for worker in list(self.workers):
                gradient = np.empty(mlp.SIZE + 1, np.float32)
                try:
                    head = receive(worker.link, 4, gradient)
                except OSError:
                    self._lost(worker)
                    continue
                self.received += 4 + gradient.nbytes
                total += gradient[:-1]
                count += struct.unpack("!i", head)[0]
                loss += float(gradient[-1])
            if count:
                self.weights -= np.float32(RATE / count) * total
                return loss / count

    def wait_for_workers(self, at_least: int | None = None) -> None:
        """Until as many have joined as there are to be, or nobody more has come in time.

        Raises:
            TimeoutError: not even one has.
        """
        end = time.monotonic() + TIMEOUT
        while len(self.workers) < (at_least or self.expected) and time.monotonic() < end:
            self.join(wait=WAIT)
        if not self.workers:
            raise TimeoutError(f"no worker joined in {TIMEOUT:.0f} s")

    def join(self, *, wait: float) -> None:
        """Take in who has connected."""
        self.listener.settimeout(wait)
        try:
            link, address = self.listener.accept()
        except (BlockingIOError, TimeoutError):
            return
        link.settimeout(TIMEOUT)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.workers.append(Worker(link, address[0]))
        say(event="joined", worker=address[0], workers=len(self.workers), step=self.step)

    def _order(self, worker: Worker, order: Order) -> None:
        try:
            self.sent += send(worker.link, ORDER.pack(*order), self.weights)
        except OSError:
            self._lost(worker)

    def _lost(self, worker: Worker) -> None:
        if worker in self.workers:
            self.workers.remove(worker)
            worker.link.close()
            say(event="lost", worker=worker.name, workers=len(self.workers), step=self.step)


class Checkpoint:
    """The server's file. Replaced whole, so that a kill at any moment leaves the last good one."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "ps-digits.npz"

    def write(self, weights: Floats, epoch: int, step: int) -> None:
        half = self.path.with_suffix(".half.npz")
        np.savez(half, weights=weights, progress=np.array([epoch, step, SEED, BATCH]))
        half.replace(self.path)

    def read(self) -> tuple[Floats, int, int] | None:
        """Weights, epoch and step; None if there is none of these settings, or of a run that was finished."""
        if not self.path.is_file():
            return None
        with np.load(self.path) as kept:
            epoch, step, seed, batch = (int(number) for number in kept["progress"])
            if (seed, batch) != (SEED, BATCH) or epoch >= EPOCHS:
                return None
            return kept["weights"], epoch, step


def serve(port: int, expected: int) -> None:
    """The server's life."""
    images, _, test_images, test_labels = digits.train_and_test()
    checkpoint = Checkpoint(CHECKPOINTS)
    kept = checkpoint.read()
    weights, epoch, step = kept if kept else (mlp.first_weights(SEED), 0, 0)
    if kept:
        say(event="resumed", epoch=epoch, step=step)
    with socket.create_server(("", port)) as listener:
        server = Server(listener, expected, weights, epoch + 1, step)
        server.wait_for_workers()
        begun = time.monotonic()
        done = server.train(len(images), checkpoint)
        report(server, done, time.monotonic() - begun, mlp.accuracy(server.weights, test_images, test_labels))
        server.dismiss()


def report(server: Server, done: int, seconds: float, accuracy: float) -> None:
    """What the server says at the end.

    Args:
        done: steps that this process has done, in so many seconds.
    """
    moved = server.sent + server.received
    say(metric="accuracy", value=round(accuracy, 4), epoch=EPOCHS, step=server.step)
    say(metric="steps_per_second", value=round(done / seconds, 2), epoch=EPOCHS, step=server.step)
    # Whatever one process sends another receives: what the server sent and received is what all sent.
    say(metric="bytes_per_step", value=round(moved / done), epoch=EPOCHS, step=server.step)
    say(metric="busiest_bytes_per_step", value=round(moved / done), epoch=EPOCHS, step=server.step)
    say(metric="workers", value=len(server.workers), epoch=EPOCHS, step=server.step)


def work(host: str, port: int, last: bool) -> None:
    """A worker's life: it keeps nothing but the data, so a lost one costs no more than the step it was in."""
    images, labels, _, _ = digits.train_and_test()
    weights, gradient = np.empty(mlp.SIZE, np.float32), np.empty(mlp.SIZE + 1, np.float32)
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            with socket.create_connection((host, port), timeout=TIMEOUT) as link:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                say(event="connected", server=host)
                while True:
                    order = Order(*ORDER.unpack(receive(link, ORDER.size, weights)))
                    end = time.monotonic() + TIMEOUT
                    if order.epoch == 0:
                        return
                    if last:
                        lose(order.epoch)
                    own = digits.part(_batch(len(images), order), order.position, order.parts)
                    gradient[:-1], gradient[-1] = mlp.gradient_sum(weights, images[own], labels[own])
                    send(link, struct.pack("!i", len(own)), gradient)
        except OSError as error:  # not there yet, or lost: it may come back
            if time.monotonic() > end:
                sys.exit(f"the server {host}:{port} could not be reached for {TIMEOUT:.0f} s: {error}")
            time.sleep(WAIT)


_orders: dict[int, digits.Whole] = {}


def _batch(count: int, order: Order) -> digits.Whole:
    if order.epoch not in _orders:
        _orders.clear()
        _orders[order.epoch] = digits.order(count, order.epoch, SEED)
    return _orders[order.epoch][order.step * BATCH : (order.step + 1) * BATCH]


def lose(epoch: int) -> None:
    """Where the settings ask for it: this worker dies as if its machine had, once per pod."""
    marker = Path("/dev/shm/lost")  # outlives the container's restart, unlike its files
    if LOSE_AT and epoch > LOSE_AT and not marker.exists():
        marker.touch()
        say(event="lost", epoch=LOSE_AT)
        os._exit(137)  # at once, as by SIGKILL, which the first process of a container does not get from within


def main() -> None:
    cluster = json.loads(os.environ["TF_CONFIG"])
    role, index = cluster["task"]["type"], int(cluster["task"]["index"])
    hosts = cluster["cluster"]
    host, _, port = hosts["ps"][0].rpartition(":")
    say(event="started", role=role, index=index, workers=len(hosts["worker"]))
    if role == "ps":
        serve(int(port), len(hosts["worker"]))
    else:
        work(host, int(port), last=index == len(hosts["worker"]) - 1)


if __name__ == "__main__":
    main()
