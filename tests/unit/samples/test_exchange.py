"""Ring all-reduce and the parameter server: the same training by two ways of exchange, without MPI and without sockets."""

import queue
import threading
from typing import Any

import allreduce_digits
import digits
import mlp
import numpy as np
import ps_digits
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


class Pipe:
    """A place in a ring of threads."""

    def __init__(self, rank: int, size: int, boxes: list[Any]) -> None:
        self.rank, self.size, self._boxes = rank, size, boxes

    def exchange(self, out: Any, into: Any) -> None:
        self._boxes[(self.rank + 1) % self.size].put(out.copy())
        into[:] = self._boxes[self.rank].get(timeout=30)


def in_ring(size: int, work: Any) -> list[Any]:
    """What each of so many ranks returns from work(link)."""
    boxes: list[Any] = [queue.Queue() for _ in range(size)]
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        results[rank] = work(Pipe(rank, size, boxes))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 6), length=st.integers(1, 50))
def test_after_an_all_reduce_every_rank_has_the_sum_and_has_sent_two_vectors_less_two_parts(
    size: int, length: int
) -> None:
    def work(link: Pipe) -> Any:
        vector = np.arange(length, dtype=np.float32) + 100 * link.rank
        moved = allreduce_digits.Moved()
        allreduce_digits.all_reduce(link, vector, moved)
        return vector, moved

    found = in_ring(size, work)
    expected = size * np.arange(length, dtype=np.float32) + 100 * sum(range(size))
    for vector, _ in found:
        assert np.allclose(vector, expected)
    assert sum(moved.sent for _, moved in found) == 2 * (size - 1) * length * 4
    assert sum(moved.received for _, moved in found) == sum(moved.sent for _, moved in found)


def small() -> tuple[Any, Any]:
    random = np.random.RandomState(1)
    return random.rand(200, mlp.INPUTS).astype(np.float32), random.randint(0, 10, 200)


def alone(epochs: int) -> Any:
    """The weights of a single process."""
    images, labels = small()
    weights = mlp.first_weights(0)
    for epoch in range(1, epochs + 1):
        for batch in digits.batches(len(images), allreduce_digits.BATCH, epoch, 0):
            gradient, _ = mlp.gradient_sum(weights, images[batch], labels[batch])
            weights -= np.float32(allreduce_digits.RATE / len(batch)) * gradient
    return weights


@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_that_all_reduce_train_what_one_process_trains(size: int) -> None:
    images, labels = small()

    def work(link: Pipe) -> Any:
        weights, moved = mlp.first_weights(0), allreduce_digits.Moved()
        for epoch in (1, 2):
            allreduce_digits.train_epoch(link, weights, images, labels, epoch, moved)
        return weights

    for weights in in_ring(size, work):
        assert np.allclose(weights, alone(2), atol=1e-5)


class Wire:
    """A worker's end of the server's connection: it computes what it is sent, and may be lost."""

    def __init__(self, images: Any, labels: Any, steps: int = 10**9) -> None:
        self._images, self._labels, self._left = images, labels, steps
        self._answer = b""

    def sendall(self, message: bytes) -> None:
        order = ps_digits.Order(*ps_digits.ORDER.unpack(message[: ps_digits.ORDER.size]))
        if order.epoch == 0:
            return
        weights = np.frombuffer(message[ps_digits.ORDER.size :], np.float32)
        batch = digits.order(len(self._images), order.epoch, 0)[order.step * ps_digits.BATCH :][: ps_digits.BATCH]
        own = digits.part(batch, order.position, order.parts)
        gradient, loss = mlp.gradient_sum(weights, self._images[own], self._labels[own])
        self._left -= 1
        self._answer = len(own).to_bytes(4, "big") + np.append(gradient, np.float32(loss)).tobytes()

    def recv_into(self, room: memoryview) -> int:
        if self._left < 0:
            return 0
        taken = min(len(room), len(self._answer), 1000)
        room[:taken], self._answer = self._answer[:taken], self._answer[taken:]
        return taken

    def close(self) -> None:
        pass

    def settimeout(self, seconds: float) -> None:
        pass

    def setsockopt(self, *of: Any) -> None:
        pass


class Door:
    """A listener at which nobody knocks."""

    def settimeout(self, seconds: float) -> None:
        pass

    def accept(self) -> Any:
        raise TimeoutError


class Late(Door):
    """A listener at which those knock who were lost before."""

    def __init__(self, *wires: Wire) -> None:
        self._wires = list(wires)

    def accept(self) -> Any:
        if not self._wires:
            raise TimeoutError
        return self._wires.pop(), ("late", 0)


class Nothing:
    """A checkpoint that keeps nothing."""

    def write(self, *of: Any) -> None:
        pass


def serve(monkeypatch: pytest.MonkeyPatch, wires: list[Wire]) -> Any:
    monkeypatch.setattr(ps_digits, "EPOCHS", 2)
    server = ps_digits.Server(Door(), len(wires), mlp.first_weights(0))  # type: ignore[arg-type]
    server.workers = [ps_digits.Worker(wire, str(number)) for number, wire in enumerate(wires)]  # type: ignore[arg-type]
    server.train(len(small()[0]), Nothing())  # type: ignore[arg-type]
    return server


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_workers_of_a_server_train_what_one_process_trains(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    server = serve(monkeypatch, [Wire(*small()) for _ in range(count)])
    assert np.allclose(server.weights, alone(2), atol=1e-5)
    steps = 2 * (200 // ps_digits.BATCH)
    # Each step: to every worker the weights, from every worker the gradient; and once the end to each.
    assert server.received == steps * count * (4 + 4 * (mlp.SIZE + 1))
    assert server.sent == (steps + 1) * count * (ps_digits.ORDER.size + 4 * mlp.SIZE)


def test_a_lost_worker_is_left_out_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve(monkeypatch, [Wire(*small()), Wire(*small(), steps=2)])
    assert [worker.name for worker in server.workers] == ["0"]
    assert server.step == 2 * (200 // ps_digits.BATCH)
    assert '"event": "lost", "worker": "1", "workers": 1' in capsys.readouterr().out
    # All of the batch again from the step after the loss on: only one step lacks the lost worker's part.
    assert np.abs(server.weights - alone(2)).max() < 0.05


def test_a_worker_that_comes_back_after_the_end_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would else look for the server in vain, and fail the job that is done."""
    server = serve(monkeypatch, [Wire(*small()), Wire(*small(), steps=2)])
    server.listener = Late(Wire(*small()))
    before = server.sent
    server.dismiss()
    assert server.sent - before == ps_digits.ORDER.size + 4 * mlp.SIZE
    monkeypatch.setattr(ps_digits, "TIMEOUT", 0.0)
    server.expected = 3
    server.dismiss()  # one who never comes is not waited for for ever


@settings(deadline=None)
@given(count=st.integers(1, 200), parts=st.integers(1, 9))
def test_the_parts_of_a_batch_are_the_batch(count: int, parts: int) -> None:
    batch = np.arange(count)
    shared = [digits.part(batch, position, parts) for position in range(parts)]
    assert np.concatenate(shared).tolist() == batch.tolist()
    assert max(map(len, shared)) - min(map(len, shared)) <= 1


def test_the_gradient_is_that_of_small_differences() -> None:
    images, labels = small()
    weights = mlp.first_weights(3)
    gradient, _ = mlp.gradient_sum(weights, images[:8], labels[:8])
    for place in np.random.RandomState(0).choice(mlp.SIZE, 12, replace=False):
        moved = [weights.copy(), weights.copy()]
        moved[0][place] += 5e-3
        moved[1][place] -= 5e-3
        up, down = (mlp.gradient_sum(one, images[:8], labels[:8])[1] for one in moved)
        assert gradient[place] == pytest.approx((up - down) / 1e-2, abs=2e-2)


def test_a_rank_goes_on_only_from_a_checkpoint_of_its_own_settings(tmp_path: Any) -> None:
    kept = allreduce_digits.Checkpoint(tmp_path, 0)
    assert kept.read() is None
    kept.save(mlp.first_weights(1), 3, 66, 0.5)
    found = kept.read()
    assert found is not None and found[1:] == (3, 66, 0.5) and np.array_equal(found[0], mlp.first_weights(1))
    kept.save(mlp.first_weights(1), allreduce_digits.EPOCHS, 660, 0.1)
    assert kept.read() is None, "a finished run is not gone on with"
