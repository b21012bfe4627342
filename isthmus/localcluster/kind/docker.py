"""The container engine, through its command line: what kind itself uses.

Nothing here starts an engine (engine.py does, when it is told to). Every call is bounded in time.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from isthmus.specs.errors import NotReady

SECONDS = 120.0
"""For ordinary calls; callers name their own limit for what takes longer."""

CLUSTER_LABEL = "io.x-k8s.kind.cluster"
"""kind's own label of its nodes; the value is the cluster's name (kind v0.33, pkg/cluster/internal/providers/docker)."""


def problem() -> str | None:
    """None when the engine answers, else a sentence saying what is missing."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    done = _run("version", "--format", "{{.Server.Version}}", seconds=20)
    if done.returncode == 0:
        return None
    words = _cause(done.stderr) or "no answer"
    if "permission denied" in done.stderr:
        return f"this user may not use Docker ({words})"
    return f"the Docker engine does not answer ({words})"


def docker(*arguments: str, seconds: float = SECONDS) -> str:
    """Run a docker command.

    Returns:
        its standard output.

    Raises:
        NotReady: it failed, or took too long; the line that says why is in the message.
    """
    done = _run(*arguments, seconds=seconds)
    if done.returncode:
        words = _cause(done.stderr) or f"exit code {done.returncode}"
        raise NotReady(f"docker {' '.join(arguments[:2])} failed: {words}", subject="Docker", remedy="isthmus doctor")
    return done.stdout


def feed(file: Path, *arguments: str, seconds: float) -> None:
    """Run a docker command that reads a file on its standard input.

    Raises:
        NotReady: as `docker`.
    """
    with file.open("rb") as content:
        try:
            done = subprocess.run(
                ["docker", *arguments], stdin=content, capture_output=True, check=False, timeout=seconds
            )
        except subprocess.TimeoutExpired as error:
            raise NotReady(f"docker {arguments[0]} took over {seconds:.0f} s", subject=str(file)) from error
    if done.returncode:
        words = _cause(done.stderr.decode(errors="replace")) or f"exit code {done.returncode}"
        raise NotReady(f"{file.name}: {words}", subject=str(file))


def has_network(name: str) -> bool:
    """Whether the engine has a network of this name."""
    return name in docker("network", "ls", "--format", "{{.Name}}").split()


def remove_network(name: str) -> bool:
    """Remove a network that nothing uses; whether it is gone."""
    return _run("network", "rm", name, seconds=SECONDS).returncode == 0 or not has_network(name)


def has_image(image: str) -> bool:
    """Whether the engine holds an image of this name."""
    return _run("image", "inspect", image, seconds=SECONDS).returncode == 0


def nodes(cluster: str) -> list[dict[str, Any]]:
    """What `docker inspect` says of a kind cluster's nodes, running or not, by name."""
    found = docker("ps", "--all", "--quiet", "--filter", f"label={CLUSTER_LABEL}={cluster}").split()
    if not found:
        return []
    inspected: list[dict[str, Any]] = json.loads(docker("inspect", *found))
    return sorted(inspected, key=lambda node: str(node["Name"]))


def mounted_from(node: dict[str, Any], folder: Path) -> bool:
    """Whether a container has something below `folder` mounted."""
    return any(Path(mount.get("Source") or "/").is_relative_to(folder) for mount in node.get("Mounts") or ())


def _run(*arguments: str, seconds: float) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(arguments, 1, "", f"no answer in {seconds:.0f} s")
    except OSError as error:
        return subprocess.CompletedProcess(arguments, 127, "", str(error))


def _cause(text: str) -> str:
    """The line of an error output that says why: the engine's own, else the last."""
    lines = text.strip().splitlines()
    return next((line for line in lines if line.startswith("Error response from daemon")), lines[-1] if lines else "")
