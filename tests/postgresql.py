"""A PostgreSQL server for tests, of the programs that are on this machine; none are: the tests that need it are skipped.

It runs as the user `postgres` (it refuses to run as root), without TCP: a folder of its own with a socket in it.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


def programs() -> Path | None:
    """Where initdb and pg_ctl are, or None."""
    found = [path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    on_path = shutil.which("initdb")
    return found[-1] if found else Path(on_path).parent if on_path else None


@dataclass
class PostgreSQL:
    """A running server."""

    folder: Path
    bin: Path
    databases: int = 0

    def new_database(self) -> str:
        """URL of an empty database."""
        self.databases += 1
        name = f"t{self.databases}"
        self.sql(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def sql(self, statement: str) -> None:
        """Run a statement as the administrator."""
        _run([str(self.bin / "psql"), "-h", str(self.folder), "-U", "postgres", "-qc", statement], self.folder)

    def start(self) -> None:
        """Start it."""
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=on"
        command = [str(self.bin / "pg_ctl"), "-D", str(self.folder / "data"), "-l", str(self.folder / "log")]
        _run([*command, "-w", "-o", options, "start"], self.folder)

    def stop(self, mode: str = "fast") -> None:
        """Stop it; `immediate` is a crash."""
        _run([str(self.bin / "pg_ctl"), "-D", str(self.folder / "data"), "-m", mode, "-w", "stop"], self.folder)


@contextmanager
def server() -> Iterator[PostgreSQL | None]:
    """A server in a folder of its own, ended and removed after; None where there are no programs for one."""
    bin_folder = programs()
    if bin_folder is None:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="isthmus-pg-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    made = PostgreSQL(folder, bin_folder)
    try:
        _run([str(bin_folder / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "-A", "trust"], folder)
        made.start()
        yield made
        made.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], folder: Path) -> None:
    user = "postgres" if os.geteuid() == 0 else None
    subprocess.run(command, cwd=folder, check=True, user=user, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
