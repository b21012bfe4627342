"""The worker: gives queued runs to their clusters, takes cancelled ones out, and brings back what the clusters show.

Each `*_one` and `step` is one piece of work and returns; threads call them again and again, tests call them themselves.
Every step is logged with the run's id before and after it, so that a log tells where a killed service stopped.
"""

import logging
import os
import platform as machine
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlalchemy.exc import DBAPIError

from isthmus.service import queue
from isthmus.service.database import Database
from isthmus.service.model import Measured, RunState, Seen
from isthmus.service.platform import Platform
from isthmus.service.queue import Claim
from isthmus.service.submissions import order_of
from isthmus.specs.errors import InvalidSpec, IsthmusError, NotFound, Refused

log = logging.getLogger("isthmus.service.worker")

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Pauses between attempts to reach a cluster; the last one again and again until GIVE_UP_SECONDS."""

GIVE_UP_SECONDS = 24 * 3600.0
"""A run that could not be brought into its cluster for so long has failed."""

FAULTS = 5
"""Attempts after which an error that nobody foresaw makes the run fail."""

POLL_SECONDS = 3.0
"""An executing run is looked at so often at least: what it prints changes no object."""

RESYNC_SECONDS = 60.0
"""Every run is looked at so often, whatever the watch said: events can be missed, objects be deleted by hand."""

GAP_SECONDS = 0.5
"""Between two looks at one run, however much happens to it."""

WATCH_LEASE_SECONDS = 15.0


@dataclass
class Worker:
    """Submits and cancels. Any number may work on one database."""

    database: Database
    platform: Platform
    stacks: tuple[str, ...]
    most_active: int = 100
    name: str = field(default_factory=lambda: f"{machine.node()}/{os.getpid()}/{secrets.token_hex(3)}")

    def submit_one(self) -> bool:
        """Submit the next run. False where there is none, or the cluster could not be reached."""
        taken = queue.claim(self.database, self.name, most_active=self.most_active, stacks=self.stacks)
        if taken is None:
            return False
        tell("claimed", taken)
        try:
            self.platform.submit(taken.order)
        except (Refused, InvalidSpec, NotFound) as error:
            tell("refused", taken, error)
            queue.refused(self.database, taken, error)
            return True
        except DBAPIError:
            raise  # of the service's own database: nothing can be written down, and the lease ends by itself
        except Exception as error:  # noqa: BLE001 - whatever it is, the run must not stay claimed
            tell("unreachable", taken, error)
            self._not_now(taken, error)
            return False
        tell("submitted", taken)
        if queue.placed(self.database, taken):
            tell("placed", taken)
        return True

    def cancel_one(self) -> bool:
        """Take the next cancelled run out of its cluster. False where there is none, or the cluster could not be reached."""
        taken = queue.claim_cancellation(self.database, self.name, stacks=self.stacks)
        if taken is None:
            return False
        tell("cancelling", taken)
        try:
            state = self.platform.cancel(taken.order)
        except DBAPIError:
            raise
        except Exception as error:  # noqa: BLE001 - tried again until it is gone: a cancelled run must not go on
            tell("unreachable", taken, error)
            queue.postpone(self.database, taken, f"not cancelled yet: {_words(error)}", seconds=_pause(taken.attempts))
            return False
        if state is RunState.CANCELLED:
            queue.cancelled(self.database, taken)
        else:
            queue.let_go(self.database, taken)  # it had ended: the watch says how
        tell("cancelled", taken)
        return True

    def _not_now(self, taken: Claim, error: Exception) -> None:
        foreseen = isinstance(error, IsthmusError)
        with self.database.read() as connection:
            waited = (self.database.now(connection) - taken.created).total_seconds()
        if (foreseen and waited > GIVE_UP_SECONDS) or (not foreseen and taken.attempts >= FAULTS):
            queue.failed(self.database, taken, f"given up after {taken.attempts} attempts: {_words(error)}")
            return
        reason = f"attempt {taken.attempts} did not reach the cluster: {_words(error)}"
        queue.postpone(self.database, taken, reason, seconds=_pause(taken.attempts))


@dataclass
class Watch:
    """Looks at the runs of one stack and writes down what it sees. One service at a time watches a stack."""

    database: Database
    platform: Platform
    stack: str
    owner: str
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._token = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self.busy = False
        """Whether the cluster has runs: without any, nobody need listen to it."""
        self._held = float("-inf")
        self._due: dict[str, float] = {}
        self._looked: dict[str, float] = {}
        self._written: dict[str, Seen] = {}
        self._unwritten: dict[str, tuple[Measured, ...]] = {}

    def note(self, run: str) -> None:
        """Something of this run changed: look soon. From any thread."""
        with self._lock:
            self._changed.add(run)

    def step(self) -> int:
        """Look at every run that is due. Returns how many runs the cluster has."""
        if not self._holds():
            return 0
        rows = {row.id: row for row in queue.in_cluster(self.database, self.stack)}
        self.busy = bool(rows)
        with self._lock:
            changed, self._changed = self._changed, set()
        for gone in self._due.keys() - rows.keys():
            for known in (self._due, self._looked, self._written, self._unwritten):
                known.pop(gone, None)
        for identity, row in rows.items():
            now = self.clock()
            if identity in changed and now - self._looked.get(identity, float("-inf")) < GAP_SECONDS:
                self.note(identity)  # looked at a moment ago: next time round
            elif identity in changed or now >= self._due.get(identity, 0.0):
                self._look(identity, row.seq)
            if not self._holds():
                return 0
        for identity in changed - rows.keys():
            self._reap(identity)
        return len(rows)

    def stop(self) -> None:
        """Let another service watch."""
        self._held = float("-inf")
        queue.release(self.database, f"watch:{self.stack}", self._token)

    def _holds(self) -> bool:
        """Whether the stack is ours to watch; renewed in good time."""
        if self.clock() - self._held < WATCH_LEASE_SECONDS / 3:
            return True
        name = f"watch:{self.stack}"
        if not queue.hold(self.database, name, self.owner, self._token, seconds=WATCH_LEASE_SECONDS):
            return False
        self._held = self.clock()
        return True

    def _look(self, identity: str, seq: int) -> None:
        row = queue.by_id(self.database, identity)
        if row is None:
            return
        order = order_of(row)
        self._looked[order.id] = self.clock()
        self._due[order.id] = self.clock() + (RESYNC_SECONDS if order.simulated_seconds is not None else POLL_SECONDS)
        try:
            seen = self.platform.look(order)
        except DBAPIError:
            raise
        except Exception as error:  # noqa: BLE001 - one run that cannot be read must not keep us from the others
            log.warning("could not look", extra={"run": order.id, "stack": self.stack, "error": _words(error)})
            return
        # What a look brings is told once: metrics that the database could not take are kept for the next time.
        seen = replace(seen, metrics=self._unwritten.pop(order.id, ()) + seen.metrics)
        if seen != self._written.get(order.id):
            self._unwritten[order.id] = seen.metrics
            queue.record(self.database, seq, seen)
            self._unwritten.pop(order.id)
            self._written[order.id] = replace(seen, metrics=())
        if seen.state.final:
            log.info("ended", extra={"run": order.id, "stack": self.stack, "state": seen.state.value})

    def _reap(self, identity: str) -> None:
        """A run that was cancelled and is in the cluster all the same: a submission that somebody had begun arrived late."""
        row = queue.by_id(self.database, identity)
        if row is not None and row.stack == self.stack and row.state == RunState.CANCELLED:
            try:
                self.platform.cancel(order_of(row))
            except IsthmusError as error:
                log.warning("could not reap", extra={"run": identity, "error": _words(error)})


class Threads:
    """The worker's threads: start, wake, stop."""

    def __init__(self, worker: Worker, *, submitters: int = 4, idle_seconds: float = 0.5) -> None:
        self._worker = worker
        self._idle = idle_seconds
        self._stop = threading.Event()
        self._news = threading.Event()
        self._watches = [Watch(worker.database, worker.platform, stack, worker.name) for stack in worker.stacks]
        targets = [self._loop(worker.submit_one) for _ in range(submitters)]
        targets += [self._loop(worker.cancel_one), *(self._watching(watch) for watch in self._watches)]
        self._threads = [threading.Thread(target=target, daemon=True) for target in targets]
        # These wait for a cluster to say something, hold nothing, and end with the process.
        self._listeners = [threading.Thread(target=self._events(watch), daemon=True) for watch in self._watches]

    def start(self) -> None:
        """Begin."""
        for thread in (*self._threads, *self._listeners):
            thread.start()

    def wake(self) -> None:
        """There is something to do: do not wait for the next look."""
        self._news.set()

    def stop(self, *, seconds: float = 20.0) -> None:
        """End what is being done, give leases back. What does not end in time is taken up after its lease."""
        self._stop.set()
        self._news.set()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        for watch in self._watches:
            try:
                watch.stop()
            except DBAPIError as error:
                log.warning("lease not given back", extra={"error": _words(error)})

    def _loop(self, work: Callable[[], bool]) -> Callable[[], None]:
        def run() -> None:
            while not self._stop.is_set():
                if not self._guarded(work):
                    self._news.wait(self._idle)
                    self._news.clear()

        return run

    def _watching(self, watch: Watch) -> Callable[[], None]:
        def run() -> None:
            while not self._stop.is_set():
                self._guarded(lambda: watch.step() > 0)
                self._stop.wait(self._idle)

        return run

    def _events(self, watch: Watch) -> Callable[[], None]:
        def run() -> None:
            while not self._stop.is_set():
                if not watch.busy:
                    self._stop.wait(1.0)
                    continue
                try:
                    for run_id in watch.platform.changes(watch.stack, self._stop):
                        watch.note(run_id)
                except Exception as error:  # noqa: BLE001 - the resync goes on meanwhile
                    log.warning("watch ended", extra={"stack": watch.stack, "error": _words(error)})
                self._stop.wait(5.0)

        return run

    def _guarded(self, work: Callable[[], bool]) -> bool:
        """Work that survives everything but the end of the process: a database that is away, a fault of ours."""
        try:
            return work()
        except Exception as error:
            log.exception("worker", extra={"error": _words(error)})
            self._stop.wait(2.0)
            return False


def tell(step: str, taken: Claim, error: Exception | None = None) -> None:
    """Log one step of one run."""
    extra: dict[str, object] = {"run": taken.order.id, "stack": taken.order.stack, "attempt": taken.attempts}
    log.info(step, extra=extra | ({"error": _words(error)} if error else {}))


def _pause(attempts: int) -> float:
    return RETRY_SECONDS[min(attempts, len(RETRY_SECONDS)) - 1]


def _words(error: Exception | None) -> str:
    return error.message if isinstance(error, IsthmusError) else f"{type(error).__name__}: {error}"
