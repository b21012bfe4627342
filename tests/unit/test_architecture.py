"""What the tree promises in words, checked: which words stand where, what is imported when, how big things may be."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLATFORM = [
    ROOT / "__main__.py",
    *(ROOT / "infra").rglob("*"),
    *(ROOT / "operators").rglob("*"),
    *(ROOT / "workloads").rglob("*"),
]
SOURCES = [
    path
    for path in ROOT.rglob("*")
    if path.is_file()
    and not {".git", ".venv", "__pycache__"} & set(path.parts)
    and ".cache" not in str(path)
    and "_cache" not in str(path)
]
HEAVY = ["pulumi", "pulumi_aws", "pulumi_gcp", "pulumi_kubernetes", "kubernetes", "grpc", "jinja2", "rich", "cyclopts"]


def test_the_platform_never_says_where_it_runs() -> None:
    """The program must not know whether the far side of the wire is a real cloud."""
    word = re.compile(r"\b(simulat\w*|fake\w*|mock\w*)\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in PLATFORM
        if path.is_file() and path.suffix in {".py", ".yaml", ".md", ".sh", ""} and "__pycache__" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if word.search(line) and "EXECUTION_SIMULATED" not in line
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("sdk", ["pulumi_aws", "pulumi_gcp"])
def test_only_its_own_cloud_imports_a_cloud_sdk(sdk: str) -> None:
    cloud = sdk.removeprefix("pulumi_")
    users = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if path.suffix == ".py"
        and "tests" not in path.parts
        and re.search(rf"^\s*(import|from) {sdk}\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert users, f"nobody imports {sdk}: the check looks in the wrong place"
    assert all(user.startswith(f"infra/{cloud}") for user in users), users


def test_the_program_only_composes() -> None:
    assert len((ROOT / "__main__.py").read_text(encoding="utf-8").splitlines()) < 80


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from isthmus.cli.main import run; run(['--help']);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "demo" in done.stdout


def test_every_folder_says_what_it_is_in_twenty_lines() -> None:
    folders = ["infra", "operators", "workloads", "stacks", "tests"]
    folders += [f"isthmus/{path.name}" for path in (ROOT / "isthmus").iterdir() if (path / "__init__.py").is_file()]
    for folder in folders:
        readme = ROOT / folder / "README.md"
        assert readme.is_file(), f"{folder} has no README.md"
        assert len(readme.read_text(encoding="utf-8").splitlines()) <= 20, readme
