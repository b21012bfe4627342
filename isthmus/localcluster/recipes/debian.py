"""Debian packages as files: a root file system for an image, or single files out of a package.

The mirror is the one that this machine's apt is set up with, read from apt itself, with apt's own settings for getting
at it; none is written here. Runs in a mount and process space of its own that ends with us, so that a kill leaves neither
mounts nor processes behind.
"""

import fnmatch
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from isthmus.localcluster.recipes import elf
from isthmus.localcluster.recipes.archive import EPOCH
from isthmus.localcluster.recipes.recipe import DebianBase, DebianFiles
from isthmus.specs.errors import NotFound, NotReady

_SPACE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")

_VOLATILE = (
    "dev/*", "proc/*", "sys/*", "run/*", "tmp/*", "var/tmp/*", "var/cache/*", "var/log/*", "var/lib/apt/*",
    "var/lib/dpkg/*-old", "etc/machine-id", "etc/hostname", "etc/resolv.conf", "etc/apt", "etc/*-",
)  # fmt: skip
"""What no image needs, differs from build to build, or tells about this machine."""


def make_root(base: DebianBase, target: Path, log: Path) -> None:
    """Install the packages into `target` and trim it.

    Raises:
        NotReady: not root, no Debian mirror is set up, or the installation failed (the log is named).
        NotFound: mmdebstrap is missing.
    """
    if os.geteuid() != 0:
        raise NotReady(
            "a Debian base can be built by root only", subject=base.suite, remedy="sudo isthmus install images"
        )
    if shutil.which("mmdebstrap") is None:
        raise NotFound("mmdebstrap is not installed", subject="mmdebstrap", remedy="apt-get install mmdebstrap")
    sources = _sources(base.suite)
    options = [
        "--mode=root",
        "--variant=essential",
        f"--include={','.join(base.packages)}",
        "--aptopt=APT::Install-Recommends false",
        *(f"--aptopt={line}" for line in _apt_settings()),
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "info", "locale")),
    ]
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(EPOCH),
        "TMPDIR": str(target.parent),
        "DEBIAN_FRONTEND": "noninteractive",
    }
    with log.open("wb") as output:
        done = subprocess.run(
            [*_SPACE, "mmdebstrap", *options, base.suite, str(target), "-"],
            input=sources.encode(),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
        )
    if done.returncode:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        raise NotReady(
            f"the Debian base could not be installed: {' '.join(last)}", subject=base.suite, remedy=f"see {log}"
        )
    trim(base, target)
    _check(base, target, log)


def trim(base: DebianBase, root: Path) -> None:
    """Remove what the recipe does without, then every shared library that nothing left is linked to."""
    for pattern in (*_VOLATILE, *base.remove):
        for path in sorted(root.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for folder in root.glob("usr/lib/*-linux-gnu"):
        _drop_unused(root, folder, base.keep_libraries)


def take_files(wanted: DebianFiles, work: Path, root: Path) -> None:
    """Put single files of a package into `root`.

    Raises:
        NotReady: apt cannot get the package, or it has no such file.
    """
    folder = work / f"package-{wanted.package}"
    folder.mkdir()
    done = subprocess.run(
        ["apt-get", "download", "-q", wanted.package],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "APT_LISTCHANGES_FRONTEND": "none"},
    )
    packages = list(folder.glob("*.deb"))
    if done.returncode or not packages:
        raise NotReady(
            f"apt cannot get {wanted.package}: {done.stderr.strip()}", subject=wanted.package, remedy="apt-get update"
        )
    subprocess.run(["dpkg-deb", "--extract", str(packages[0]), str(folder / "root")], check=True)
    for source, path in wanted.take.items():
        _place(folder / "root" / source.lstrip("/"), root, path, wanted.package)


def _check(base: DebianBase, root: Path, log: Path) -> None:
    if not base.check:
        return
    devices = 'mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
    command = [*_SPACE, "sh", "-c", devices, str(root), *base.check]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp"}
    with log.open("ab") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False, env=environment)
    if done.returncode:
        raise NotReady(
            f"the trimmed Debian base fails its check: {' '.join(base.check)[:120]}",
            subject=base.suite,
            remedy=f"see {log}, then take less away in image.yaml",
        )


def _place(source: Path, root: Path, path: str, package: str) -> None:
    if not source.is_file():
        raise NotReady(f"package {package} has no file {source.name}", subject=package)
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _sources(suite: str) -> str:
    """apt's own sources of that suite as one-line entries."""
    fields = "$(LABEL)|$(REPO_URI)|$(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", fields, "Created-By: Packages", "Origin: Debian"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotReady(f"apt does not tell its sources: {error}", subject="apt", remedy="apt-get update") from error
    lines: set[str] = set()
    for label, address, component in (line.split("|") for line in done.stdout.splitlines()):
        if label == "Debian":
            lines |= {f"deb {address} {suite} {component}", f"deb {address} {suite}-updates {component}"}
        elif label == "Debian-Security":
            lines.add(f"deb {address} {suite}-security {component}")
    if not lines:
        raise NotReady(
            "apt is set up with no Debian mirror, or has no package lists yet",
            subject="apt",
            remedy="apt-get update, or build the image from its Dockerfile",
        )
    return "".join(f"{line}\n" for line in sorted(lines))


def _apt_settings() -> list[str]:
    """This machine's settings for reaching its mirror (proxies, certificates, dates), and where its logins are."""
    shown = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    wanted = ("Acquire::Check-", "Acquire::http", "Acquire::https", "Acquire::Retries")
    lines = [line.rstrip(";") for line in shown.splitlines() if line.startswith(wanted) and ' "' in line]
    return [*(line for line in lines if not line.endswith(' ""')), 'Dir::Etc::netrcparts "/etc/apt/auth.conf.d/"']


def _drop_unused(root: Path, folder: Path, keep: Iterable[str]) -> None:
    """Remove the libraries of a folder that nothing outside it needs, directly or through others of the folder."""
    libraries = {path.name: path for path in folder.iterdir() if ".so" in path.name and not path.is_dir()}
    kept = tuple(keep)
    roots = [path for path in _files(root) if path.parent != folder]
    named = {os.path.basename(os.readlink(path)) for path in _links(root) if path.parent != folder}
    started = {name for name in libraries if name in named or any(fnmatch.fnmatch(name, pattern) for pattern in kept)}
    used = started | elf.closure(
        [*roots, *(_resolved(root, libraries[name]) for name in started)], _in(root, libraries)
    )
    for name in sorted(used):  # a link keeps what it points to
        path = libraries[name]
        while path.is_symlink() and os.path.basename(os.readlink(path)) not in used | {path.name}:
            path = path.parent / os.path.basename(os.readlink(path))
            used = used | {path.name}
    for name in libraries.keys() - used:
        libraries[name].unlink()


def _in(root: Path, libraries: dict[str, Path]) -> dict[str, Path]:
    return {name: _resolved(root, path) for name, path in libraries.items()}


def _resolved(root: Path, path: Path) -> Path:
    """Where a path of the root file system leads, links taken as the file system itself would take them."""
    for _ in range(10):
        if not path.is_symlink():
            return path
        link = os.readlink(path)
        path = root / link.lstrip("/") if link.startswith("/") else Path(os.path.normpath(path.parent / link))
    return path


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]


def _links(root: Path) -> list[Path]:
    return [path for path in root.rglob("*.so*") if path.is_symlink()]
