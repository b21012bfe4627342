"""What tests of whole stacks share: the commands a user types, in an ISTHMUS_HOME of their own."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import unittest.mock
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from isthmus.kube import Cluster
from isthmus.localcluster import runtime
from isthmus.simulation import object_servers
from isthmus.simulation.account import Account
from isthmus.specs import stack as stack_settings
from isthmus.specs.errors import IsthmusError
from isthmus.toolchain import home
from tests.clusters import borrow_home

ROOT = Path(__file__).resolve().parents[1]
COMMAND_SECONDS = 600


class Stacks:
    """The isthmus and pulumi commands on the repository's stacks, with state and clusters in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        """`folder` becomes the home, or is one that an earlier run kept."""
        # The home of the session may itself have borrowed its programs: the plugins lie beside the real ones.
        plugins = home.tools().resolve().parent / "pulumi" / "plugins"
        self.home = folder if (folder / "pulumi").is_dir() else borrow_home(folder)
        self.program = ROOT
        (self.home / "pulumi").mkdir(mode=0o700, exist_ok=True)
        if not (self.home / "pulumi" / "plugins").is_symlink():
            (self.home / "pulumi" / "plugins").symlink_to(plugins)
        self.environment = {**os.environ, "ISTHMUS_HOME": str(self.home), "PYTHONUNBUFFERED": "1"}
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.environment['PATH']}"
        for name in ("PULUMI_HOME", "PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE_FILE"):
            self.environment.pop(name, None)

    def isthmus(self, *arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run an isthmus command; its exit code must be `code` (None: any)."""
        return self._run([sys.executable, "-m", "isthmus.cli.main", *arguments], code)

    def python(self, program: str, *arguments: str) -> str:
        """Run a Python program in this home; returns what it printed."""
        return self._run([sys.executable, "-c", program, *arguments], 0).stdout

    def pulumi(self, *arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run the plain pulumi command as the launcher starts it."""
        return self._run(["pulumi", *arguments, "--non-interactive"], code)

    def start(self, *command: str, output: IO[str] | int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, to be killed in the middle."""
        return subprocess.Popen(
            command, cwd=self.program, env=self.environment, text=True, start_new_session=True,
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def state(self, stack: str) -> dict[str, Any]:
        """The exported state of a stack."""
        return dict(json.loads(self.pulumi("stack", "export", "--stack", stack).stdout)["deployment"])

    def clusters(self) -> list[runtime.LocalCluster]:
        """The local clusters of this home."""
        with self.as_home():
            return runtime.EveryRuntime().list()

    def local(self, stack: str) -> runtime.LocalCluster:
        """The local cluster behind a stack."""
        [found] = [one for one in self.clusters() if one.name.startswith(stack)]
        return found

    def cluster(self, stack: str) -> Cluster:
        """A stack's cluster as its administrator, without the command for credentials."""
        return Cluster(self.local(stack).kubeconfig())

    def settings(self, stack: str, **changes: Any) -> None:
        """From now on work in a copy of the program in which these settings of a stack are other ones."""
        copy = self.home.parent / "program"
        if copy.is_dir():
            self.program = copy
        if self.program == ROOT:
            shutil.copytree(ROOT / stack_settings.CONFIG_DIR, copy / stack_settings.CONFIG_DIR)
            for name in ("Pulumi.yaml", "__main__.py"):
                shutil.copy(ROOT / name, copy)
            (copy / ".venv").symlink_to(Path(sys.executable).parents[1])
            self.program = copy
        path = copy / stack_settings.CONFIG_DIR / f"Pulumi.{stack}.yaml"
        document = yaml.safe_load(path.read_text())
        document["config"] |= {f"{stack_settings.PROJECT}:{key}": value for key, value in changes.items()}
        path.write_text(yaml.safe_dump(document))

    def expire(self, stack: str, ago: timedelta) -> list[Path]:
        """Put certificates of the same user that ended some time ago in place of the kept ones, and see that the API server
        refuses them. Returns the files."""
        found = self.local(stack)
        files = sorted((self.home / "clusters" / found.name / "credentials").glob("*.json"))
        assert files, "no command has kept a credential"
        for path in files:
            kept = json.loads(path.read_text())
            kept["certificate"] = ended(kept["certificate"], self.home / "clusters" / found.name / "pki", ago)
            kept["expires"] = (datetime.now(UTC) - ago).isoformat()
            path.write_text(json.dumps(kept))
            admin = found.kubeconfig()
            user = {"client-certificate-data": _base64(kept["certificate"]), "client-key-data": _base64(kept["key"])}
            with pytest.raises(IsthmusError):
                Cluster({**admin, "users": [{"name": admin["users"][0]["name"], "user": user}]}).list("v1", "Node")
        return files

    def expect_nothing_left(self) -> None:
        """No cluster, no folder of one, and no process or mount that names this home; an account keeps its file and an empty
        one to lock it by."""
        assert not self.clusters()
        assert not list((self.home / "clusters").iterdir())
        mark = str(self.home)
        assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if mark in line]
        commands = (_command(pid) for pid in Path("/proc").glob("[0-9]*"))
        assert not [text for text in commands if mark in text and "kube-" in text]
        locks = [path for path in (self.home / "accounts").iterdir() if path.suffix == ".lock"]
        assert all(path.with_suffix(".db").exists() and not path.stat().st_size for path in locks)

    def end(self) -> None:
        """Delete every cluster of this home and end every object server, whatever the tests left."""
        with self.as_home():
            for cluster in runtime.EveryRuntime().list():
                cluster.delete()
            for path in (self.home / "accounts").glob("*.db"):
                object_servers.stop(Account(path.stem, path))

    def as_home(self) -> contextlib.AbstractContextManager[Any]:
        """While this lasts, this process works in that home, too."""
        return unittest.mock.patch.dict(os.environ, {home.HOME_VARIABLE: str(self.home)})

    def _run(self, command: list[str], code: int | None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=self.program,
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


def ended(certificate: str, pki: Path, ago: timedelta) -> str:
    """The same certificate (PEM) from the same CA, for a time that is over."""
    old = x509.load_pem_x509_certificate(certificate.encode())
    authority = serialization.load_pem_private_key((pki / "ca.key").read_bytes(), password=None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    end = datetime.now(UTC) - ago
    builder = x509.CertificateBuilder(old.issuer, old.subject, old.public_key(), old.serial_number)
    builder = builder.not_valid_before(end - timedelta(minutes=15)).not_valid_after(end)
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text().replace("\0", " ")
    except OSError:  # it ended
        return ""
