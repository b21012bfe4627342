"""What the drill of a move is made of: objects, jobs, faults, and what must be true of a run at its end."""

import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import yaml

from isthmus import catalog
from isthmus.kube.objects import holds
from isthmus.migration.move.record import Record
from isthmus.simulation import capacity
from isthmus.simulation.account import open_account
from isthmus.specs import labels
from isthmus.specs import stack as stack_settings
from tests.stacks import Stacks

AWS, GCP = "aws-sim", "gcp-sim"
JOB = ("kubeflow.org/v1", "PyTorchJob")
STEP_SECONDS = 900.0
END_SECONDS = 2400.0
TRIES = 5

FILL = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from isthmus.cli import migration_ends as ends
from isthmus.migration.objects.store import Metadata
stack, first, count, size = sys.argv[1], *map(int, sys.argv[2:])
store = ends.store(stack, 8)
put = lambda n: store.write(f"data/{n:05}", os.urandom(size), Metadata(content_type="text/plain", user={"n": str(n)}))
with ThreadPoolExecutor(8) as pool:
    list(pool.map(put, range(first, first + count)))
"""
LIST = """
import hashlib, json, sys
from concurrent.futures import ThreadPoolExecutor
from isthmus.cli import migration_ends as ends
store = ends.store(sys.argv[1], 8)
def digest(item):
    with store.read(item.key, version="", start=0, length=item.size) as body:
        return item.key, hashlib.sha256(b"".join(body.chunks)).hexdigest()
with ThreadPoolExecutor(8) as pool:
    print(json.dumps(dict(pool.map(digest, store.items()))))
"""


class Drill:
    """A move from one stack to another, and what is done to it on the way. Faults come by a seed, and are written down."""

    def __init__(self, stacks: Stacks, seed: int) -> None:
        self.stacks, self.choose = stacks, random.Random(seed)
        self.faults: list[str] = []
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        """A fault that has come, with the time since the drill began."""
        line = f"{time.monotonic() - self._began:6.0f} s  {text}"
        self.faults.append(line)
        print(line, flush=True)

    # What there is.

    def fill(self, stack: str, first: int, count: int, size: int) -> None:
        """Write objects of random bytes, `size` each."""
        self.stacks.python(FILL, stack, str(first), str(count), str(size))

    def objects(self, stack: str) -> dict[str, str]:
        """Key to SHA-256 of every object, read from the bucket itself."""
        return dict(json.loads(self.stacks.python(LIST, stack)))

    def submit(self, workload: str, *changes: str) -> str:
        """Submit to the source; returns the run's id."""
        words = [word for change in changes for word in ("--set", change)]
        done = self.stacks.isthmus("run", workload, "-s", AWS, *words, "--json")
        return str(json.loads(done.stdout)["run"])

    def suspended_job(self, epochs: int) -> str:
        """A user's own manifest of a job of one process that nobody has let go yet; its path."""
        container = {
            "name": "pytorch",
            "image": "docker.io/isthmus/torch:1.13.1",
            "command": ["python3", "/opt/isthmus/ddp_digits.py"],
            "env": [
                {"name": name, "value": value}
                for name, value in {
                    "EPOCHS": str(epochs), "CHECKPOINTS": "", "HOME": "/tmp", "OMP_NUM_THREADS": "1"
                }.items()
            ],
            "resources": {"limits": {labels.GPU_RESOURCE: "1"}},
        }  # fmt: skip
        manifest = {
            "apiVersion": JOB[0],
            "kind": JOB[1],
            "metadata": {"name": "waiting"},
            "spec": {
                "runPolicy": {"suspend": True, "cleanPodPolicy": "None"},
                "pytorchReplicaSpecs": {
                    "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
                },
            },
        }  # fmt: skip
        path = self.stacks.home.parent / "waiting.yaml"
        path.write_text(yaml.safe_dump(manifest))
        return str(path)

    def shown(self, run: str) -> dict[str, Any]:
        """A run as `isthmus runs show` has it."""
        return dict(json.loads(self.stacks.isthmus("runs", "show", run, "--json", code=None).stdout))

    def metrics(self, run: str) -> list[dict[str, Any]]:
        """Its metrics."""
        return list(json.loads(self.stacks.isthmus("metrics", run, "--json").stdout))

    def job(self, stack: str, run: str) -> dict[str, Any] | None:
        """A run's job in a stack's cluster, where there is one."""
        if not any(one.name.startswith(stack) for one in self.stacks.clusters()):
            return None
        found = self.stacks.cluster(stack).list(*JOB, labels.RUNS_NAMESPACE, selector={labels.RUN: run})
        assert len(found) <= 1
        return dict(found[0]) if found else None

    # The move.

    def record(self) -> Record:
        """What the move has written down."""
        return Record(self.stacks.home / "migrations" / f"{AWS}--{GCP}.move.db")

    def begun(self, *names: str) -> bool:
        """Whether one of these steps was begun."""
        return bool(set(names) & self.record().steps().keys())

    def status(self) -> dict[str, Any]:
        """The report."""
        return dict(json.loads(self.stacks.isthmus("migrate", "status", AWS, GCP, "--json").stdout))

    def arrived(self) -> int:
        """Files that the destination's object server keeps."""
        data = self.stacks.home / "accounts" / f"{GCP}.objects" / "data"
        return sum(len(files) for _, _, files in os.walk(data))

    def run_until(
        self, command: tuple[str, ...], when: Callable[[], bool], act: Callable[[int], None], what: str
    ) -> tuple[int, str]:
        """Start a command, do something once something is so, and see it to its end; returns exit code and output.

        Args:
            act: given the command's process group.
        """
        with tempfile.TemporaryFile("w+") as output:
            process = self.stacks.start("isthmus", *command, output=output)
            end = time.monotonic() + STEP_SECONDS
            while not when():
                if process.poll() is not None:
                    output.seek(0)
                    raise AssertionError(f"{' '.join(command)} ended before {what}:\n{output.read()[-4000:]}")
                assert time.monotonic() < end, f"{' '.join(command)} did not come to {what}"
                time.sleep(0.02)
            act(process.pid)
            process.wait(timeout=STEP_SECONDS)
            output.seek(0)
            return process.returncode, output.read()

    def kill(self, command: tuple[str, ...], when: Callable[[], bool], what: str, *, after: float = 0.0) -> None:
        """Start a command and kill -9 its whole group `after` seconds after something is so."""

        def act(group: int) -> None:
            time.sleep(after)
            os.killpg(group, signal.SIGKILL)

        code, _ = self.run_until(command, when, act, what)
        self.note(
            f"kill -9 {what}" + (f" + {after:.1f} s" if after else "") + ("" if code < 0 else " (it had just ended)")
        )

    def resume(self) -> str:
        """Go on until it is over or refuses for another reason than an API server that is away; returns what it said last."""
        for _ in range(TRIES):
            done = self.stacks.isthmus("migrate", "resume", AWS, GCP, code=None)
            if done.returncode == 0:
                return ""
            if "cannot be reached" not in done.stderr:
                return done.stderr
            self.note("resume: the source's API server was away; once more")
            time.sleep(2)
        raise AssertionError(done.stderr)

    # Faults.

    def stock_out(self, count: int | None) -> None:
        """So many machines with cards in every zone of the destination; None: as many as are asked for."""
        its = stack_settings.load(self.stacks.program, GCP)
        pool = next(pool for pool in its.gpu_pools if pool.size)
        machine = catalog.load().machine_for(its.cloud, its.region, pool.gpu, pool.instance_type).instance_type
        with self.stacks.as_home():
            account = open_account(its.account)
            for zone in its.zones:
                capacity.set_available(account, zone, machine, count)

    def corrupt(self) -> str:
        """Flip a byte of one object on the destination's disk, whose size and times stay; returns its key."""
        data = self.stacks.home / "accounts" / f"{GCP}.objects" / "data"
        files = sorted(path for path in data.rglob("*") if path.is_file() and path.name[-5:].isdigit())
        path: Path = self.choose.choice(files)
        before = path.stat()
        with path.open("r+b") as file:
            file.seek(before.st_size // 2)
            [byte] = file.read(1)
            file.seek(before.st_size // 2)
            file.write(bytes([byte ^ 1]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        key = f"data/{path.name[-5:]}"
        self.note(f"a byte of {key} flipped at {GCP}")
        return key

    def kill_api_server(self, stack: str) -> None:
        """Kill the API server of a stack's cluster; its supervisor starts it again."""
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            if "kube-apiserver" in line and str(self.stacks.home) in line and stack in line:
                process.kill()
                self.note(f"kill -9 of the API server of {stack}")
                return
        raise AssertionError(f"{stack} has no API server")

    # The end.

    def wait_for_metric(self, run: str) -> None:
        """Wait until it has printed a loss."""
        end = time.monotonic() + 300
        while '"loss"' not in self.stacks.isthmus("logs", run, code=None).stdout:
            assert time.monotonic() < end, f"run {run} printed no loss: {self.shown(run)}"
            time.sleep(1)

    def wait_for_end(self, run: str) -> dict[str, Any]:
        """Wait until it is over; it must have succeeded."""
        end = time.monotonic() + END_SECONDS
        while (shown := self.shown(run))["state"] not in {"Succeeded", "Failed", "Cancelled", "Lost"}:
            assert time.monotonic() < end, shown
            time.sleep(3)
        assert shown["state"] == "Succeeded", shown
        return shown

    def expect_finished_once(self, run: str, stack: str, epochs: int) -> dict[str, Any]:
        """One job in both clusters together, which succeeded; one first process that ended well; every epoch's loss once."""
        shown = self.wait_for_end(run)
        jobs = {place: job for place in (AWS, GCP) if (job := self.job(place, run)) is not None}
        assert list(jobs) == [stack] == [shown["stack"]]
        assert holds(jobs[stack], "Succeeded")
        well = [pod for pod in shown["pods"] if pod["rank"] == 0 and pod["exit_code"] == 0]
        assert len(well) == 1, shown["pods"]
        found = self.metrics(run)
        losses = {item["epoch"]: item["value"] for item in found if item["metric"] == "loss" and item["rank"] == 0}
        missing = sorted(set(range(1, epochs + 1)) - losses.keys())
        assert not missing and len(losses) == epochs, f"epochs without a loss: {missing[:20]}"
        [accuracy] = [item["value"] for item in found if item["metric"] == "accuracy"]
        assert accuracy >= 0.95
        return {"run": run, "ended on": stack, "epochs": epochs, "accuracy": accuracy, "last loss": losses[epochs]}

    def epochs_a_second(self, run: str) -> float:
        """How fast a run was, from its first loss to its last."""
        moments = sorted(item["at"] for item in self.metrics(run) if item["metric"] == "loss")
        spent = datetime.fromisoformat(moments[-1]) - datetime.fromisoformat(moments[0])
        return (len(moments) - 1) / spent.total_seconds()

    def epochs_before(self, run: str, moment: str) -> int:
        """How many of its epochs a run had printed the loss of at a moment."""
        at = datetime.fromisoformat(moment)
        found = [item for item in self.metrics(run) if item["metric"] == "loss" and item["rank"] == 0]
        return sum(datetime.fromisoformat(item["at"]) <= at for item in found)
