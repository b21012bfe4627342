"""What tests of whole stacks share: the commands a user types, in an ISTHMUS_HOME of their own."""

import contextlib
import json
import os
import subprocess
import sys
import time
import unittest.mock
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isthmus.localcluster import runtime
from isthmus.toolchain import home
from tests.clusters import borrow_home

ROOT = Path(__file__).resolve().parents[1]
COMMAND_SECONDS = 600


class Stacks:
    """The isthmus and pulumi commands on the repository's stacks, with state and clusters in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        # The home of the session may itself have borrowed its programs: the plugins lie beside the real ones.
        plugins = home.tools().resolve().parent / "pulumi" / "plugins"
        self.home = borrow_home(folder)
        (self.home / "pulumi").mkdir(mode=0o700)
        (self.home / "pulumi" / "plugins").symlink_to(plugins)
        self.environment = {**os.environ, "ISTHMUS_HOME": str(self.home), "PYTHONUNBUFFERED": "1"}
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.environment['PATH']}"
        for name in ("PULUMI_HOME", "PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE_FILE"):
            self.environment.pop(name, None)

    def isthmus(self, *arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run an isthmus command; its exit code must be `code` (None: any)."""
        return self._run([sys.executable, "-m", "isthmus.cli.main", *arguments], code)

    def pulumi(self, *arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run the plain pulumi command as the launcher starts it."""
        return self._run(["pulumi", *arguments, "--non-interactive"], code)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, to be killed in the middle."""
        return subprocess.Popen(
            command, cwd=ROOT, env=self.environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def state(self, stack: str) -> dict[str, Any]:
        """The exported state of a stack."""
        return dict(json.loads(self.pulumi("stack", "export", "--stack", stack).stdout)["deployment"])

    def clusters(self) -> list[runtime.LocalCluster]:
        """The local clusters of this home."""
        with self._as_home():
            return runtime.choose().list()

    def end(self) -> None:
        """Delete every cluster of this home, whatever the tests left."""
        with self._as_home():
            for cluster in runtime.choose().list():
                cluster.delete()

    def _as_home(self) -> contextlib.AbstractContextManager[Any]:
        return unittest.mock.patch.dict(os.environ, {home.HOME_VARIABLE: str(self.home)})

    def _run(self, command: list[str], code: int | None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if code is not None:
            assert done.returncode == code, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done


def eventually(look: Callable[[], object], *, seconds: float, what: str) -> None:
    """Wait until `look` gives something true."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, f"after {seconds:.0f} s still not: {what}"
        time.sleep(0.2)
