"""`isthmus doctor`: what this machine has and lacks, and the command that mends each."""

from typing import Annotated

from cyclopts import Parameter


def doctor(*, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Check this machine; one line per check with the command that fixes it.

    Exit code 0: all that the embedded runtime needs is there. 1: something is missing.

    Parameters
    ----------
    json
        Print every field of every check as JSON.
    """
    from isthmus.cli.output import print_json
    from isthmus.toolchain.doctor import as_rows, examine, healthy

    checks = examine()
    good = healthy(checks)
    if json:
        print_json({"healthy": good, "checks": as_rows(checks)})
        return 0 if good else 1
    width = max(len(check.name) for check in checks)
    for check in checks:
        cure = f"  ->  {check.remedy}" if check.remedy and check.verdict != "found" else ""
        print(f"{check.verdict:<8} {check.name:<{width}}  {check.detail}{cure}")
    missing = sum(check.verdict == "missing" and check.needed for check in checks)
    print("all that the embedded runtime needs is there" if good else f"{missing} missing; next: isthmus install")
    return 0 if good else 1
