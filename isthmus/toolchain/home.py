"""The one module that knows the paths under ISTHMUS_HOME and the environment of the programs we start.

Everything isthmus writes outside the checkout lies under one folder (default ~/.isthmus, mode 0700), so that removing
that folder removes all of it. This module only names and creates paths: it installs nothing and starts nothing.

The pulumi launcher imports it before every command, so what few functions need is imported in them.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from isthmus.specs.errors import NotFound

HOME_VARIABLE = "ISTHMUS_HOME"
PYTHON_VARIABLE = "ISTHMUS_PYTHON"
RUNTIME_VARIABLE = "ISTHMUS_RUNTIME"
"""The interpreter that start scripts under ISTHMUS_HOME use: of the environment that started pulumi."""

SHIPPED_PASSPHRASE = "isthmus-stacks-without-real-secrets"
"""The passphrase of the stacks whose settings file carries SHIPPED_SALT. It is public on purpose: an encryption salt fits
one passphrase only, the salt of a simulated stack is in the repository, and such a stack holds no secret of a real
account. Every other stack gets this home's own random passphrase."""

SHIPPED_SALT = "v1:AsjN0CHZi7E=:v1:fKeyeqX9If+kOeVv:3xEXtCjj0Soq54uO6xQ9Kq1LRwGsaA=="
"""`encryptionsalt` of the stack files in the repository that hold no real secret (made with SHIPPED_PASSPHRASE)."""


def home() -> Path:
    """The ISTHMUS_HOME folder, absolute; created with mode 0700 when it is not there."""
    value = os.environ.get(HOME_VARIABLE)
    return _folder(Path(value).expanduser().absolute() if value else Path.home() / ".isthmus")


def tools() -> Path:
    """Installed programs: <name>-<version>/ each, and bin/ with links to all of them."""
    return _folder(home() / "tools")


def tools_bin() -> Path:
    """Links to every installed program; first on the PATH of what we start."""
    return _folder(tools() / "bin")


def cache() -> Path:
    """What a later install can use again: the Go module and build caches, downloads in progress."""
    return _folder(home() / "cache")


def images() -> Path:
    """OCI archives built here; `unpacked/` is the unpacked store that clusters share."""
    return _folder(home() / "images")


def pulumi_home() -> Path:
    """PULUMI_HOME of the programs we start, unless the user has set one: plugins and credentials."""
    return _folder(home() / "pulumi")


def scratch() -> Path:
    """Temporary files of Pulumi commands, a folder for each process."""
    return _folder(home() / "pulumi" / "tmp")


def state() -> Path:
    """The folder of the Pulumi file back end."""
    return _folder(home() / "state")


def accounts() -> Path:
    """The simulated accounts, one SQLite file each."""
    return _folder(home() / "accounts")


def account_file(account: str) -> Path:
    """SQLite file of a simulated account (which may not exist yet).

    Raises:
        ValueError: the name would leave the folder.
    """
    if not account or "/" in account or account.startswith("."):
        raise ValueError(f"not an account name: {account!r}")
    return accounts() / f"{account}.db"


def clusters() -> Path:
    """The embedded clusters, one folder each."""
    return _folder(home() / "clusters")


def buckets() -> Path:
    """Folders that stand for buckets on the kind cloud: <cluster>/<bucket>."""
    return _folder(home() / "buckets")


def runs_db() -> Path:
    """SQLite file of runs and their metrics (which may not exist yet)."""
    return home() / "runs.db"


def migrations() -> Path:
    """What is known of moves from one stack to another, some files each."""
    return _folder(home() / "migrations")


def reports() -> Path:
    """Reports we wrote."""
    return _folder(home() / "reports")


def logs() -> Path:
    """Tracebacks of failed commands, output of builds."""
    return _folder(home() / "logs")


def tool(program: str) -> Path:
    """Absolute path of a program we start: the installed one first, then the one on PATH.

    Raises:
        NotFound: it is in neither place.
    """
    linked = home() / "tools" / "bin" / program
    if os.access(linked, os.X_OK):
        return linked
    for found_in in sorted((home() / "tools").glob(f"*/bin/{program}")):
        # Programs without a link in tools/bin (pulumi itself, its plugins); a half-made tool has no .complete yet.
        if os.access(found_in, os.X_OK) and (found_in.parent.parent / ".complete").exists():
            return found_in
    import shutil

    found = shutil.which(program)
    if found:
        return Path(found).absolute()
    raise NotFound(f"{program} is not installed", subject=program, remedy="isthmus install")


def share(name: str) -> Path:
    """The files that come with an installed tool (an operator's manifests): <tools>/<name>-<version>/share.

    Raises:
        NotFound: the tool is not in the table, or not installed.
    """
    from isthmus.toolchain.table import tool_named  # the table imports nothing of this module; kept late for speed

    folder = tools() / tool_named(name).folder / "share"
    if not folder.is_dir():
        raise NotFound(f"the files of {name} are not installed", subject=name, remedy=f"isthmus install {name}")
    return folder


def passphrase_file() -> Path:
    """This home's own passphrase for stack secrets: random, mode 0600, made on first use."""
    path = state() / "passphrase"
    if path.exists():
        return path
    import secrets

    return _secret_file(path, secrets.token_urlsafe(32))


def shipped_passphrase_file() -> Path:
    """The public passphrase of the stacks that carry SHIPPED_SALT, as a file for PULUMI_CONFIG_PASSPHRASE_FILE."""
    return _secret_file(state() / "passphrase-shipped", SHIPPED_PASSPHRASE)


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables to lay over the environment of a child process, so that it finds our programs and Pulumi our state.

    PATH always comes with our tools and scripts first. A Pulumi variable is set only where the user has not chosen: a back end is
    chosen by PULUMI_BACKEND_URL, PULUMI_ACCESS_TOKEN or an earlier `pulumi login`; a passphrase by
    PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE. Which passphrase a stack needs is decided by the pulumi
    launcher in tools/bin (see isthmus.toolchain.launcher).

    Args:
        given: the user's environment; default os.environ.
    """
    given = os.environ if given is None else given
    # Kubeconfigs call `isthmus` by its bare name, so the folder of our own scripts comes second.
    ours = [str(tools_bin()), str(Path(sys.executable).absolute().parent)]
    rest = [part for part in given.get("PATH", os.defpath).split(os.pathsep) if part and part not in ours]
    result = {"PATH": os.pathsep.join([*ours, *rest]), HOME_VARIABLE: str(home())}
    if not given.get(PYTHON_VARIABLE):
        result[PYTHON_VARIABLE] = sys.executable
    if not given.get("PULUMI_HOME"):
        result["PULUMI_HOME"] = str(pulumi_home())
    if not _backend_chosen(given):
        result["PULUMI_BACKEND_URL"] = state().as_uri()
    if "PULUMI_CONFIG_PASSPHRASE" not in given and not given.get("PULUMI_CONFIG_PASSPHRASE_FILE"):
        result["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(passphrase_file())
    for name in ("PULUMI_SKIP_UPDATE_CHECK", "PULUMI_IGNORE_AMBIENT_PLUGINS"):  # PATH must not replace a pinned plugin
        if name not in given:
            result[name] = "true"
    return result


def _backend_chosen(given: Mapping[str, str]) -> bool:
    if given.get("PULUMI_BACKEND_URL") or given.get("PULUMI_ACCESS_TOKEN"):
        return True
    credentials = Path(given.get("PULUMI_HOME") or home() / "pulumi") / "credentials.json"
    if not credentials.exists():
        return False
    import json

    try:
        return bool(json.loads(credentials.read_text(encoding="utf-8")).get("current"))
    except (OSError, ValueError, AttributeError):
        return False


def _folder(path: Path) -> Path:
    """Create a folder (and the missing ones above it) for this user only; an existing one is left as it is."""
    if not path.is_dir():
        _folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def _secret_file(path: Path, text: str) -> Path:
    """Write a secret once. Two processes may race: the first one's text wins, and no half-written file is ever seen."""
    if path.exists():
        return path
    import tempfile

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp gives mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(temporary)
    return path
