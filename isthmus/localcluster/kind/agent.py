"""The node agent of a kind cluster (isthmus/localcluster/agent): a process of this machine beside the containers.

A shell starts it again when it dies. It begins with the cluster's nodes and ends with them; where it is gone all the same,
`status` says so and `start` brings it back. Nobody but us can end it by a name: it is known by pid and start time.
"""

import os
import signal
import subprocess
import sys
import time

from isthmus.localcluster import processes
from isthmus.localcluster.kind import config
from isthmus.localcluster.kind.state import Paths
from isthmus.localcluster.runtime import ProcessStatus
from isthmus.localcluster.state import read_json, write_json
from isthmus.specs.errors import NotReady
from isthmus.toolchain import scratch

NAME = "node-agent"
END_SECONDS = 10.0
_AGAIN = 'while [ -e "$0" ]; do "$@"; sleep 2; done'
"""Shell: as long as the cluster's state file is there. SIGTERM to the group ends both."""


def start(name: str, paths: Paths) -> None:
    """Start it, where a node has a driver root and it does not run yet. The caller holds the cluster's lock."""
    if _running(paths) is not None or not _has_driver(paths):
        return
    program = (*processes.ENDS_WITH_PARENT, sys.executable, "-m", "isthmus.localcluster.agent", name)
    log = paths.logs / f"{NAME}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            ["sh", "-c", _AGAIN, str(paths.state), *program],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/",
            env=scratch.outlasting(os.environ),
        )  # fmt: skip
    write_json(paths.agent, {"pid": process.pid, "started": processes.start_time(process.pid), "since": time.time()})


def stop(paths: Paths) -> None:
    """End it. Idempotent.

    Raises:
        NotReady: it does not end.
    """
    pid = _running(paths)
    if pid is not None:
        _signal(pid, signal.SIGTERM)
        end = time.monotonic() + END_SECONDS
        while _members(pid) and time.monotonic() < end:
            time.sleep(0.05)
        if _members(pid):
            _signal(pid, signal.SIGKILL)
        end = time.monotonic() + END_SECONDS
        while _members(pid):
            if time.monotonic() > end:
                raise NotReady("its node agent does not end", subject=f"process group {pid}", remedy="try again")
            time.sleep(0.05)
    paths.agent.unlink(missing_ok=True)


def process(paths: Paths) -> ProcessStatus | None:
    """What it is doing; None where no node has cards."""
    if not _has_driver(paths):
        return None
    pid = _running(paths)
    since = (read_json(paths.agent) or {}).get("since")
    message = "" if pid else "does not run: cards cannot be cut or claimed"
    return ProcessStatus(NAME, pid is not None, pid is not None, pid, 0, None, since, message)


def _has_driver(paths: Paths) -> bool:
    return any(paths.nodes.glob(f"*/{config.DRIVER}"))


def _running(paths: Paths) -> int | None:
    found = read_json(paths.agent)
    if found is None or not processes.alive(found["pid"], found["started"]):
        return None
    pid: int = found["pid"]
    return pid


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _members(group: int) -> bool:
    """Whether a process of the group is left that somebody has not just to wait for."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and processes.start_time(int(entry)) is not None:
            try:
                if os.getpgid(int(entry)) == group:
                    return True
            except ProcessLookupError:
                continue
    return False
