"""Entry point: which commands there are, and how an error becomes one sentence and an exit code.

Commands are named by import path and only the one asked for is imported, so `isthmus --help` stays within its budget
(0.3 s). cyclopts parses each command's own arguments.
"""

import difflib
import sys
import traceback
from datetime import UTC, datetime
from typing import NoReturn

from isthmus.specs.errors import IsthmusError

COMMANDS = {
    "install": ("isthmus.cli.install:install", "Build or fetch the programs that isthmus runs."),
    "doctor": ("isthmus.cli.doctor:doctor", "Check this machine; one line per check with the command that fixes it."),
    "preview": ("isthmus.cli.stack:preview", "Show what `up` would change."),
    "up": ("isthmus.cli.stack:up", "Create or update a stack."),
    "refresh": ("isthmus.cli.stack:refresh", "Read back what is really there."),
    "down": ("isthmus.cli.stack:down", "Delete everything of a stack."),
    "status": ("isthmus.cli.status:status", "Show a stack's cluster, nodes, operators and what is pending, and why."),
    "kubeconfig": ("isthmus.cli.stack:kubeconfig", "Print a kubeconfig for a stack's cluster."),
    "kube-token": ("isthmus.cli.kube_token:kube_token", "Print a credential for kubectl (called by kubeconfigs)."),
    "run": ("isthmus.cli.run:run", "Submit a workload to a stack."),
    "convert": ("isthmus.cli.convert:convert", "Convert a PyTorchJob or TFJob to a TrainJob of Kubeflow Trainer v2."),
    "runs": ("isthmus.cli.runs:app", "List and show runs."),
    "logs": ("isthmus.cli.logs:logs", "Print the logs of a run by role and rank."),
    "metrics": ("isthmus.cli.metrics:metrics", "Print the metrics of a run."),
    "cancel": ("isthmus.cli.cancel:cancel", "Stop a run."),
    "serve": ("isthmus.cli.serve:serve", "Run the training service: API, queue, algorithm registry."),
    "service": ("isthmus.cli.service:app", "Use a running training service; keep its database."),
    "cost": ("isthmus.cli.cost:app", "Compare prices across clouds, bill runs and stacks, set budgets."),
    "catalog": ("isthmus.cli.catalog:app", "Keep prices current, and see what differs."),
    "sharing": ("isthmus.cli.sharing:app", "Ways to share a card: explain, check, try, compare and change them."),
    "parity": ("isthmus.cli.parity:parity", "Show that stacks carry the same objects, or the paths that differ."),
    "migrate": ("isthmus.cli.migrate:app", "Move from one stack to another, and back."),
    "sim": ("isthmus.cli.sim:app", "Look into and steer a simulated account."),
    "demo": ("isthmus.cli.demo:demo", "Both simulated clouds up, training on each, parity, one cost comparison."),
}

VERSION = "0.1.0"


def main() -> NoReturn:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 wrong usage or invalid spec, 3 refused by a check."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    name = arguments[0] if arguments else "--help"
    if name in {"--help", "-h", "help"}:
        print(_help())
        return 0
    if name == "--version":
        print(VERSION)
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else "isthmus --help lists the commands"
        print(f"error: there is no command {name!r}\n  next:   {hint}", file=sys.stderr)
        return 2
    return _guarded(name, arguments)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "isthmus: the same GPU training platform on EKS and GKE, real or simulated",
            "",
            "usage: isthmus COMMAND ...        isthmus COMMAND --help        isthmus --version",
            "",
            *lines,
            "",
            "exit codes: 0 done, 1 failed, 2 wrong usage or invalid spec, 3 refused before anything changed",
        ]
    )


def _guarded(name: str, arguments: list[str]) -> int:
    try:
        return _dispatch(name, arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except IsthmusError as error:
        _report(error)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - anything else is a fault of ours: say so briefly, keep the trace in a file
        log = _log_trace()
        _report(IsthmusError(f"unexpected {type(error).__name__}: {error}", remedy=f"see {log}"))
        return 1


def _dispatch(name: str, arguments: list[str]) -> int:
    from cyclopts import App, CycloptsError  # here, so that help and version do not pay for it

    path, text = COMMANDS[name]
    app = App(name="isthmus", help_format="plaintext", version=VERSION)
    app.command(path, name=name, help=text)
    try:
        result = app(arguments, exit_on_error=False, print_error=True, result_action="return_value")
    except CycloptsError:
        return 2
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _report(error: IsthmusError) -> None:
    lines = [f"error: {error.message}"]
    if error.subject:
        lines.append(f"  object: {error.subject}")
    if error.remedy:
        lines.append(f"  next:   {error.remedy}")
    print("\n".join(lines), file=sys.stderr)


def _log_trace() -> str:
    from isthmus.toolchain import home

    path = home.logs() / f"error-{datetime.now(UTC):%Y%m%dT%H%M%S}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(traceback.format_exc(), encoding="utf-8")
    except OSError:
        traceback.print_exc()
    return str(path)


if __name__ == "__main__":
    main()
