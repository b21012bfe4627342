"""The distribution's packages that the tools lean on: which are missing, and installing them by apt where we are root.

A package counts as there when its program or file is, whoever put it there: on another distribution nothing is asked of
apt, and what is missing is named.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from isthmus.specs.errors import IsthmusError
from isthmus.toolchain import home
from isthmus.toolchain.rows import DebianPackage

APT_TIMEOUT_SECONDS = 900
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OPTIONS = ["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]


def is_present(
    package: DebianPackage, *, search: str | None = None, exists: Callable[[str], bool] = os.path.exists
) -> bool:
    """Whether what we want of a package is on this machine."""
    if package.program and shutil.which(package.program, path=search or f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"):
        return True
    return any(exists(path) for path in (package.file, *package.alternatives) if path)


def missing(packages: Sequence[DebianPackage]) -> list[DebianPackage]:
    """Those that are not there."""
    return [package for package in packages if not is_present(package)]


def command_for(packages: Sequence[DebianPackage]) -> str:
    """What a person types to install them."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install -y --no-install-recommends {' '.join(package.name for package in packages)}"


def install(packages: Sequence[DebianPackage], log: Path) -> None:
    """Install packages by apt.

    Args:
        packages: what is missing.
        log: where apt's words go.

    Raises:
        IsthmusError: not root, no apt, or apt failed; the remedy is the command to type.
    """
    names = ", ".join(package.name for package in packages)
    if shutil.which("apt-get") is None:
        raise IsthmusError(
            f"this machine lacks {names} (names of Debian's packages), and has no apt-get",
            subject=names,
            remedy="install them with this distribution's package manager",
        )
    if os.geteuid() != 0:
        raise IsthmusError(f"only root may install {names}", subject=names, remedy=command_for(packages))
    wanted = ["install", "-y", "--no-install-recommends", *(package.name for package in packages)]
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("ab") as file:
        if _apt(["update"], file.fileno()) != 0 and not any(Path("/var/lib/apt/lists").glob("*_Packages*")):
            raise IsthmusError("apt-get update failed", subject=names, remedy=f"less {log}")
        code = _apt(wanted, file.fileno())
    still = missing(packages)
    if code != 0 or still:
        what = ", ".join(package.name for package in still or packages)
        raise IsthmusError(f"apt-get could not install {what}", subject=str(log), remedy=command_for(still or packages))


def _apt(arguments: Sequence[str], output: int) -> int:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    environment["PATH"] = f"{environment.get('PATH', '')}:{_SYSTEM_PATH}"
    try:
        return subprocess.run(
            ["apt-get", *_OPTIONS, *arguments],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            timeout=APT_TIMEOUT_SECONDS,
        ).returncode
    except subprocess.TimeoutExpired:
        return -1


def log_file() -> Path:
    """Where apt's words go."""
    return home.logs() / "apt.log"
