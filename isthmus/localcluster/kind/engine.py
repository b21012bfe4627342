"""A Docker engine for machines that have none: installed and started only when told, and stopped by who started it.

`python -m isthmus.localcluster.kind.engine start|stop`, for `make e2e` and CI. An engine that answers is used as it is, and
never stopped. One of ours keeps its data below ISTHMUS_HOME/docker and is known by docker/engine.json; stopping it takes
away its processes, its bridge and its packet filter chains, and leaves its images for the next time.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from isthmus.localcluster import linux, network, processes
from isthmus.localcluster.configs import wrapper
from isthmus.localcluster.kind import docker
from isthmus.localcluster.kind.machine import NETWORK
from isthmus.localcluster.state import read_json, write_file, write_json
from isthmus.specs.errors import IsthmusError, NotReady, Refused
from isthmus.toolchain import debian, home
from isthmus.toolchain.rows import DebianPackage

INSTALL = "INSTALL_DOCKER"
"""Set to 1 in the environment: yes, install Docker on this machine, and start it."""

PACKAGE = DebianPackage("docker.io", (), "runs kind's nodes", program="dockerd")
BRIDGE = "docker0"
START_SECONDS = 60.0
STOP_SECONDS = 60.0


def folder() -> Path:
    """What an engine of ours keeps."""
    path = home.home() / "docker"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def start() -> str:
    """Make sure that an engine answers; says in a sentence which one.

    Raises:
        Refused: none answers and we were not told to install one, or cannot.
        NotReady: it did not start; the log is named.
    """
    problem = docker.problem()
    if problem is None:
        return "Docker answers"
    if os.environ.get(INSTALL) != "1":
        raise Refused(
            f"kind needs Docker, and {problem}",
            subject="Docker",
            remedy=f"install and start Docker, or let make do it on a Debian machine: {INSTALL}=1 make e2e",
        )
    if os.geteuid() != 0:
        raise Refused(
            f"only root may start Docker, and {problem}", subject="Docker", remedy="sudo systemctl start docker"
        )
    if shutil.which("dockerd") is None:
        print("installing docker.io", flush=True)
        debian.install([PACKAGE], home.logs() / "apt.log")
    if Path("/run/systemd/system").is_dir():  # a service manager keeps it
        subprocess.run(["systemctl", "start", "docker"], check=False)
        if docker.problem() is None:
            return "Docker was started by the service manager"
    _spawn()
    return "Docker was started"


def stop() -> str:
    """Stop the engine if it is ours; says in a sentence what was done.

    Raises:
        NotReady: it does not end.
    """
    note = read_json(folder() / "engine.json")
    if note is None:
        return "no engine of ours runs"
    bridges = note.get("bridges", [BRIDGE])
    if processes.alive(note["pid"], note["started"]):
        docker.remove_network(NETWORK)
        bridges = _bridges()
        write_json(folder() / "engine.json", {**note, "bridges": bridges})
        os.kill(note["pid"], signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        while processes.alive(note["pid"], note["started"]):
            if time.monotonic() > end:
                raise NotReady("Docker does not end", subject=f"process {note['pid']}", remedy=f"see {_log()}")
            time.sleep(0.1)
    _clean_network(bridges, forwarding=note["forwarding"])
    shutil.rmtree(folder() / "exec", ignore_errors=True)
    (folder() / "engine.json").unlink()
    return "Docker was stopped"


def _spawn() -> None:
    where = folder()
    forwarding = network.FORWARD.read_text(encoding="ascii").strip()
    # Docker forbids all forwarding where it has to turn it on itself; so it is on before.
    network.FORWARD.write_text("1", encoding="ascii")
    options = [f"--data-root={where}/data", f"--exec-root={where}/exec", f"--pidfile={where}/pid"]
    if not linux.has_capability(linux.CAP_SYS_RESOURCE):
        runtime = where / "oci-runtime"
        write_file(runtime, wrapper(where / "no-driver", drop_capability=True), mode=0o755)
        options += [f"--add-runtime=isthmus={runtime}", "--default-runtime=isthmus"]
    with _log().open("ab") as log:
        started = subprocess.Popen(
            ["dockerd", *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    note = {"pid": started.pid, "started": processes.start_time(started.pid), "forwarding": forwarding}
    write_json(where / "engine.json", note)
    end = time.monotonic() + START_SECONDS
    while (problem := docker.problem()) is not None:
        if started.poll() is not None or time.monotonic() > end:
            stop()
            raise NotReady(f"Docker did not start: {problem}", subject="dockerd", remedy=f"see {_log()}")
        time.sleep(0.2)


def _bridges() -> list[str]:
    """The interfaces of the engine's networks."""
    if docker.problem() is not None:
        return [BRIDGE]
    found = docker.docker("network", "ls", "--quiet", "--filter", "driver=bridge").split()
    return [BRIDGE, *(f"br-{identity}" for identity in found)]


def _clean_network(bridges: list[str], *, forwarding: str) -> None:
    """What dockerd leaves behind when it ends: its bridges, its chains, the forwarding switch."""
    for bridge in bridges:
        network.run("ip", "link", "delete", bridge, check=False)
    for family in ("iptables", "ip6tables"):
        for table in ("nat", "filter"):
            _remove_chains(family, table, bridges)
    network.FORWARD.write_text(forwarding, encoding="ascii")


def _remove_chains(family: str, table: str, bridges: list[str]) -> None:
    rules = network.run(family, "--table", table, "--list-rules", check=False).splitlines()
    theirs = [rule.split() for rule in rules if "DOCKER" in rule or set(rule.split()) & set(bridges)]
    for rule in theirs:  # rules of other chains that jump there, or are about its bridges
        if rule[0] == "-A" and not rule[1].startswith("DOCKER"):
            network.run(family, "--table", table, "--delete", *rule[1:], check=False)
    chains = [rule[1] for rule in theirs if rule[0] == "-N"]
    for option in ("--flush", "--delete-chain"):
        for chain in chains:
            network.run(family, "--table", table, option, chain, check=False)


def _log() -> Path:
    return folder() / "dockerd.log"


def main(arguments: list[str]) -> int:
    """start or stop; prints what was done. Exit code as of the command line."""
    try:
        print({"start": start, "stop": stop}[arguments[0]]())
    except IsthmusError as error:
        print(f"error: {error.message}\n  object: {error.subject}\n  next:   {error.remedy}", file=sys.stderr)
        return error.exit_code
    except (KeyError, IndexError):
        print(f"usage: {json.dumps(['start', 'stop'])}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
