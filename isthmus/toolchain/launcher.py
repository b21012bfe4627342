"""What runs before the Pulumi command: `pulumi` in the venv and in tools/bin starts this file, which execs the real one.

A user types plain `pulumi up -s aws-sim`; for that to work on a fresh machine without an account, five things have to be
so, and are done here each time and only where the user has not chosen otherwise:

- the environment of isthmus.toolchain.home: our plugins, our state folder, no update check;
- the passphrase. A salt in a stack file fits one passphrase. The stack files in the repository that hold no real secret
  carry SHIPPED_SALT, made with a public passphrase; so a stack with that salt gets that passphrase (no other can work,
  not even one the user has set for other stacks), and every other stack gets this home's own random one;
- a lock of the file back end whose process is dead (kill -9, power cut) is removed, with a line that says so. Pulumi
  itself would refuse to work until `pulumi cancel`. A lock of a live process, or of another machine, is never touched;
- the stack: one that has a settings file but is new to our state folder is initialised;
- a folder for its temporary files (see scratch.py).

Standard library only and few imports: it runs before every command, within 60 ms, under `python -IS`.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

if __name__ == "__main__":  # started by path, without site-packages: find the package this file belongs to
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from isthmus.toolchain import home, scratch

REUSE_MARGIN_SECONDS = 5.0
"""A process that started this much later than a lock was written has only the lock owner's number, by chance."""

WORKING = {"up", "update", "preview", "refresh", "destroy", "import"}
"""Commands that need their stack to be in the back end."""


def main(arguments: Sequence[str]) -> None:
    """Set up and exec the real command.

    Args:
        arguments: path of the real pulumi, then the user's arguments. Does not return.
    """
    real, given = arguments[0], list(arguments[1:])
    environment = dict(os.environ)
    environment.update(home.environment(environment))
    stack_file = find_stack_file(given, environment, Path.cwd())
    if stack_file is not None and has_shipped_salt(stack_file) and not holds_no_secret(stack_file):
        print(
            f"warning: {stack_file.name} carries the public salt of the simulated stacks, but is not simulated: "
            "remove its encryptionsalt line, and the stack gets a passphrase of its own",
            file=sys.stderr,
        )
    elif stack_file is not None and has_shipped_salt(stack_file):
        environment.pop("PULUMI_CONFIG_PASSPHRASE", None)
        environment["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(home.shipped_passphrase_file())
    if stack_file is not None and (runtime := local_runtime(stack_file)):
        environment.setdefault(home.RUNTIME_VARIABLE, runtime)
    if not environment.get("TMPDIR"):
        environment["TMPDIR"] = str(scratch.folder())
    for line in remove_stale_locks(environment.get("PULUMI_BACKEND_URL", "")):
        print(line, file=sys.stderr, flush=True)
    if stack_file is not None and is_new(given, stack_file, environment.get("PULUMI_BACKEND_URL", "")):
        import subprocess

        name = stack_file.stem.removeprefix("Pulumi.")
        made = subprocess.run(
            [real, "stack", "init", name, "--no-select"], env=environment, stdout=sys.stderr, check=False
        )
        if made.returncode:
            sys.exit(made.returncode)
    try:
        os.execve(real, [real, *given], environment)
    except OSError as error:
        print(f"error: cannot start {real}: {error.strerror}\n  next:   isthmus install engine", file=sys.stderr)
        sys.exit(1)


def find_stack_file(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Path | None:
    """The settings file of the stack that a pulumi command is about, or None where there is none (yet).

    In order: --config-file; -s or --stack; PULUMI_STACK; an argument that is the name of a stack with a file (`pulumi stack
    init NAME`, `select NAME`, `rm NAME`); the stack that was selected in this project.
    """
    folder = folder / (_option(arguments, ("-C", "--cwd")) or "")
    config_file = _option(arguments, ("--config-file",))
    if config_file:
        return folder / config_file
    project = next(
        (parent / "Pulumi.yaml" for parent in (folder, *folder.parents) if (parent / "Pulumi.yaml").is_file()), None
    )
    if project is None:
        return None
    settings = _project_settings(project)
    stacks = project.parent / settings.get("stackConfigDir", settings.get("config", "."))
    named = _option(arguments, ("-s", "--stack")) or environment.get("PULUMI_STACK")
    if named:
        return _stack_file(stacks, named)
    for argument in arguments:
        if not argument.startswith("-") and (found := _stack_file(stacks, argument)) is not None:
            return found
    selected = _selected_stack(project, settings.get("name", ""), environment)
    return _stack_file(stacks, selected) if selected else None


def is_new(arguments: Sequence[str], stack_file: Path, backend_url: str) -> bool:
    """Whether a command works on a stack that has a settings file but is not yet in the file back end.

    Its settings file is what makes a stack exist for a user, so that `pulumi up -s aws-sim` works at once in a fresh clone.
    Other back ends, and commands that make stacks themselves, are left to Pulumi.
    """
    if not backend_url.startswith("file://") or not WORKING & set(arguments):
        return False
    project = stack_file.parent.parent / "Pulumi.yaml"
    if not project.is_file():
        return False
    name = stack_file.stem.removeprefix("Pulumi.")
    known = Path(unquote(backend_url.removeprefix("file://"))).expanduser() / ".pulumi" / "stacks"
    return not any((known / _project_settings(project).get("name", "")).glob(f"{name}.json*"))


def has_shipped_salt(stack_file: Path) -> bool:
    """Whether a stack file carries the salt that fits the public passphrase."""
    return any(
        line.startswith("encryptionsalt:") and line.split(":", 1)[1].strip().strip("'\"") == home.SHIPPED_SALT
        for line in _text(stack_file).splitlines()
    )


def holds_no_secret(stack_file: Path) -> bool:
    """Whether a stack's settings say that it is simulated, or a cluster on this machine: no secret of a real account."""
    settings = {line.strip().replace('"', "").replace("'", "") for line in _text(stack_file).splitlines()}
    return bool(settings & {"isthmus:mode: simulated", "isthmus:cloud: kind"})


def local_runtime(stack_file: Path) -> str:
    """What the stack's settings say should run its local cluster (isthmus:runtime); "" for the default.

    It goes to the far side through the environment: it is about this machine, so it is no input of any resource.
    """
    found = re.search(r"^\s*isthmus:runtime:\s*[\"']?(\w+)", _text(stack_file), re.MULTILINE)
    return found.group(1) if found else ""


def remove_stale_locks(backend_url: str, *, host: str | None = None) -> Iterator[str]:
    """Remove the locks of dead processes of this machine from a file back end; one line of text for each.

    Args:
        backend_url: the back end in use; only file:// is looked at.
        host: this machine's name as Pulumi writes it, by default os.uname().
    """
    if not backend_url.startswith("file://"):
        return
    place = unquote(backend_url.removeprefix("file://"))
    locks = Path(place).expanduser() / ".pulumi" / "locks"
    if not locks.is_dir():
        return
    host = host or os.uname().nodename
    for lock in sorted(locks.rglob("*.json")):
        owner = _read_json(lock)
        pid = owner.get("pid")
        if not isinstance(pid, int) or owner.get("hostname") != host:
            continue
        if owner_alive(pid, str(owner.get("timestamp", ""))):
            continue
        try:
            lock.unlink()
        except FileNotFoundError:
            continue
        yield f"removed the lock of stack {lock.parent.name}: its process {pid} is gone"


def owner_alive(pid: int, timestamp: str, *, proc: Path = Path("/proc")) -> bool:
    """Whether the process that wrote a lock still runs. In doubt, yes.

    Args:
        pid: its number; it may since have been given to another process, which then started after `timestamp`.
        timestamp: when the lock was written (RFC 3339).
        proc: where the kernel shows processes.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    from datetime import datetime  # here and not above: most commands find no lock

    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in (proc / "stat").read_text().splitlines() if line.startswith("btime"))
        state, started_ticks = fields[0], int(fields[19])
        started = int(boot.split()[1]) + started_ticks / os.sysconf("SC_CLK_TCK")
        written = datetime.fromisoformat(_microseconds(timestamp)).timestamp()
    except (OSError, ValueError, IndexError, StopIteration):
        return True
    return state not in "ZX" and started <= written + REUSE_MARGIN_SECONDS


def _microseconds(timestamp: str) -> str:
    """Go writes up to nine decimals and Z; Python reads at most six."""
    head, dot, tail = timestamp.partition(".")
    if not dot:
        return timestamp
    digits = len(tail) - len(tail.lstrip("0123456789"))
    return f"{head}.{tail[: min(digits, 6)].ljust(6, '0')}{tail[digits:]}"


def _option(arguments: Sequence[str], names: tuple[str, ...]) -> str | None:
    for index, argument in enumerate(arguments):
        if argument == "--":
            return None
        for name in names:
            if argument == name:
                return arguments[index + 1] if index + 1 < len(arguments) else None
            if name.startswith("--") and argument.startswith(f"{name}="):
                return argument.partition("=")[2]
            if not name.startswith("--") and argument.startswith(name) and not argument.startswith("--"):
                return argument[len(name) :].removeprefix("=")
    return None


def _project_settings(project: Path) -> dict[str, str]:
    """The plain top-level `key: value` lines of a Pulumi.yaml; enough for the name and the folder of stack files."""
    settings = {}
    for line in project.read_text(encoding="utf-8").splitlines():
        key, colon, value = line.partition(":")
        if colon and key and not key[0].isspace() and value.strip():
            settings[key] = value.split(" #")[0].strip().strip("'\"")
    return settings


def _stack_file(stacks: Path, name: str) -> Path | None:
    short = name.rpartition("/")[2]
    if not short or short.startswith("."):
        return None
    path = stacks / f"Pulumi.{short}.yaml"
    return path if path.is_file() else None


def _selected_stack(project: Path, name: str, environment: Mapping[str, str]) -> str:
    """What `pulumi stack select` remembered: PULUMI_HOME/workspaces/<name>-<sha1 of the project file's path>-workspace.json."""
    from hashlib import sha1

    digest = sha1(str(project.resolve()).encode(), usedforsecurity=False).hexdigest()
    folder = Path(environment.get("PULUMI_HOME") or Path.home() / ".pulumi") / "workspaces"
    remembered = _read_json(folder / f"{name}-{digest}-workspace.json")
    stacks = remembered.get("stacks")
    if isinstance(stacks, dict) and stacks:
        return str(stacks.get(environment.get("PULUMI_BACKEND_URL", ""), next(iter(stacks.values()))))
    return str(remembered.get("stack", ""))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _read_json(path: Path) -> dict[str, object]:
    import json

    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


if __name__ == "__main__":
    main(sys.argv[1:])
