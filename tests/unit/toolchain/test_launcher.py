"""Before every pulumi command: which passphrase, and which locks are of the dead."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.toolchain import home, launcher, scratch

HOST = "here"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a stack of the repository's kind, and one of the user's."""
    folder = tmp_path / "project"
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: tiny\nruntime:\n  name: python\nstackConfigDir: stacks # here\n")
    (folder / "stacks/Pulumi.sim.yaml").write_text(
        f"encryptionsalt: {home.SHIPPED_SALT}\nconfig:\n  isthmus:mode: simulated\n"
    )
    (folder / "stacks/Pulumi.mine.yaml").write_text("encryptionsalt: v1:other\nconfig: {}\n")
    return folder


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["up", "-s", "sim"], {}, "sim"),
        (["up", "-ssim"], {}, "sim"),
        (["up", "--stack", "sim", "--yes"], {}, "sim"),
        (["--stack=organization/tiny/sim", "up"], {}, "sim"),
        (["stack", "init", "sim"], {}, "sim"),
        (["stack", "select", "org/tiny/mine"], {}, "mine"),
        (["preview"], {"PULUMI_STACK": "sim"}, "sim"),
        (["preview", "-s", "mine"], {"PULUMI_STACK": "sim"}, "mine"),
        (["preview"], {}, None),
        (["up", "-s", "unknown"], {}, None),
        (["up", "--", "-s", "sim"], {}, "sim"),  # after --, still the name of a stack with a file
    ],
)
def test_the_stack_of_a_command(
    project: Path, tmp_path: Path, arguments: list[str], environment: dict[str, str], expected: str | None
) -> None:
    found = launcher.find_stack_file(arguments, {"PULUMI_HOME": str(tmp_path), **environment}, project)
    assert (found.name if found else None) == (f"Pulumi.{expected}.yaml" if expected else None)


def test_from_a_folder_below_and_by_cwd_option(project: Path, tmp_path: Path) -> None:
    below = project / "a" / "b"
    below.mkdir(parents=True)
    assert launcher.find_stack_file(["up", "-s", "sim"], {}, below) is not None
    assert launcher.find_stack_file(["-C", str(project), "up", "-s", "sim"], {}, tmp_path) is not None
    assert launcher.find_stack_file(["up", "-s", "sim"], {}, tmp_path) is None


def test_a_config_file_is_taken_as_given(project: Path) -> None:
    assert launcher.find_stack_file(["up", "--config-file", "x.yaml", "-s", "sim"], {}, project) == project / "x.yaml"


def test_the_selected_stack(project: Path, tmp_path: Path) -> None:
    from hashlib import sha1

    digest = sha1(str((project / "Pulumi.yaml").resolve()).encode(), usedforsecurity=False).hexdigest()
    remembered = tmp_path / "ph" / "workspaces" / f"tiny-{digest}-workspace.json"
    remembered.parent.mkdir(parents=True)
    environment = {"PULUMI_HOME": str(tmp_path / "ph"), "PULUMI_BACKEND_URL": "file:///s"}
    remembered.write_text(json.dumps({"stacks": {"file:///s": "organization/tiny/sim", "other": "mine"}}))
    assert launcher.find_stack_file(["preview"], environment, project) == project / "stacks/Pulumi.sim.yaml"
    remembered.write_text(json.dumps({"stack": "mine"}))
    assert launcher.find_stack_file(["preview"], environment, project) == project / "stacks/Pulumi.mine.yaml"


def test_the_salt_decides(project: Path) -> None:
    assert launcher.has_shipped_salt(project / "stacks/Pulumi.sim.yaml")
    assert not launcher.has_shipped_salt(project / "stacks/Pulumi.mine.yaml")
    assert not launcher.has_shipped_salt(project / "stacks/Pulumi.none.yaml")


def test_the_shipped_salt_fits_the_shipped_passphrase() -> None:
    """As Pulumi checks it: PBKDF2 of a million rounds, AES-GCM, and the plain text is the word pulumi."""
    import base64
    import hashlib

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    _, salt, _, nonce, secret = home.SHIPPED_SALT.split(":")
    key = hashlib.pbkdf2_hmac("sha256", home.SHIPPED_PASSPHRASE.encode(), base64.b64decode(salt), 1_000_000, 32)
    assert AESGCM(key).decrypt(base64.b64decode(nonce), base64.b64decode(secret), None) == b"pulumi"


def run_launcher(project: Path, user: dict[str, str], *arguments: str) -> dict[str, str]:
    """Run the launcher as it is run, with `env` in the place of pulumi."""
    script = Path(launcher.__file__)
    result = subprocess.run(
        [sys.executable, "-IS", script, "/usr/bin/env", *arguments],
        cwd=project,
        env={"PATH": "/usr/bin:/bin", **user},
        capture_output=True,
        text=True,
        check=False,
    )
    return dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)


def test_what_pulumi_is_started_with(project: Path, isthmus_home: Path) -> None:
    ours = {"ISTHMUS_HOME": str(isthmus_home)}
    seen = run_launcher(project, {**ours, "PULUMI_STACK": "sim"})
    assert Path(seen["PULUMI_CONFIG_PASSPHRASE_FILE"]).read_text() == home.SHIPPED_PASSPHRASE
    assert seen["PULUMI_BACKEND_URL"] == f"file://{isthmus_home}/state"
    seen = run_launcher(project, {**ours, "PULUMI_STACK": "mine"})
    assert seen["PULUMI_CONFIG_PASSPHRASE_FILE"] == str(isthmus_home / "state" / "passphrase")


def test_the_user_s_passphrase_counts_except_where_it_cannot_fit(project: Path, isthmus_home: Path) -> None:
    user = {"ISTHMUS_HOME": str(isthmus_home), "PULUMI_CONFIG_PASSPHRASE": "theirs"}
    seen = run_launcher(project, {**user, "PULUMI_STACK": "mine"})
    assert seen["PULUMI_CONFIG_PASSPHRASE"] == "theirs"
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in seen
    seen = run_launcher(project, {**user, "PULUMI_STACK": "sim"})
    assert "PULUMI_CONFIG_PASSPHRASE" not in seen
    assert Path(seen["PULUMI_CONFIG_PASSPHRASE_FILE"]).read_text() == home.SHIPPED_PASSPHRASE


def test_a_real_stack_with_the_public_salt_is_not_encrypted_with_it(project: Path, isthmus_home: Path) -> None:
    stack_file = project / "stacks/Pulumi.copy.yaml"
    stack_file.write_text(f"encryptionsalt: {home.SHIPPED_SALT}\nconfig:\n  isthmus:mode: real\n")
    seen = run_launcher(project, {"ISTHMUS_HOME": str(isthmus_home), "PULUMI_STACK": "copy"})
    assert seen["PULUMI_CONFIG_PASSPHRASE_FILE"] == str(isthmus_home / "state" / "passphrase")
    assert not launcher.holds_no_secret(stack_file)
    stack_file.write_text('config:\n  "isthmus:cloud": kind\n')
    assert launcher.holds_no_secret(stack_file)


def test_the_repository_s_stacks() -> None:
    """Those with the public salt are simulated or local; the real ones have none, so each user makes their own."""
    for path in (Path(__file__).parents[3] / "stacks").glob("Pulumi.*.yaml"):
        if launcher.has_shipped_salt(path):
            assert launcher.holds_no_secret(path), path.name
        else:
            assert "encryptionsalt" not in path.read_text(), path.name


def test_a_missing_pulumi_is_one_sentence(project: Path, isthmus_home: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-IS", launcher.__file__, "/nonexistent/pulumi", "up"],
        cwd=project,
        env={"ISTHMUS_HOME": str(isthmus_home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].strip() == "next:   isthmus install engine"


# Locks.


def write_lock(state: Path, pid: int, *, host: str = HOST, stamp: str = "2026-11-30T12:00:00.123456789Z") -> Path:
    lock = state / ".pulumi/locks/organization/tiny/sim" / f"{pid}.json"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(json.dumps({"pid": pid, "hostname": host, "username": "u", "timestamp": stamp}))
    return lock


def dead_pid() -> int:
    return next(pid for pid in range(4_000_000, 3_000_000, -1) if not Path(f"/proc/{pid}").exists())


def test_a_dead_process_s_lock_is_removed_and_told(tmp_path: Path) -> None:
    lock = write_lock(tmp_path, dead_pid())
    lines = list(launcher.remove_stale_locks(f"file://{tmp_path}", host=HOST))
    assert not lock.exists()
    assert len(lines) == 1
    assert "stack sim" in lines[0]


def test_live_foreign_and_unreadable_locks_stay(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    mine = write_lock(tmp_path, os.getpid(), stamp=datetime.now(UTC).isoformat())
    foreign = write_lock(tmp_path, dead_pid(), host="elsewhere")
    broken = mine.with_name("broken.json")
    broken.write_text("{")
    assert list(launcher.remove_stale_locks(f"file://{tmp_path}", host=HOST)) == []
    assert mine.exists()
    assert foreign.exists()
    assert broken.exists()


def test_another_back_end_is_not_looked_at(tmp_path: Path) -> None:
    lock = write_lock(tmp_path, dead_pid())
    assert list(launcher.remove_stale_locks(f"s3://{tmp_path}", host=HOST)) == []
    assert list(launcher.remove_stale_locks("", host=HOST)) == []
    assert lock.exists()


def test_a_reused_number_is_not_the_owner(tmp_path: Path) -> None:
    """This test's own process started long after a lock of the last century was written."""
    assert not launcher.owner_alive(os.getpid(), "1999-01-01T00:00:00Z")
    assert launcher.owner_alive(os.getpid(), "not a time"), "in doubt it is alive"
    assert launcher.owner_alive(os.getpid(), "2999-01-01T00:00:00.5+01:00")


def test_go_s_nine_decimals_are_read() -> None:
    assert not launcher.owner_alive(os.getpid(), "1999-01-01T00:00:00.123456789+02:00")


def test_a_stack_with_settings_is_new_until_the_back_end_has_it(project: Path, tmp_path: Path) -> None:
    backend, stack_file = (tmp_path / "state").as_uri(), project / "stacks/Pulumi.sim.yaml"
    assert launcher.is_new(["up", "-s", "sim"], stack_file, backend)
    assert not launcher.is_new(["stack", "init", "sim"], stack_file, backend)
    assert not launcher.is_new(["up", "-s", "sim"], stack_file, "s3://elsewhere")
    known = tmp_path / "state/.pulumi/stacks/tiny"
    known.mkdir(parents=True)
    (known / "sim.json").write_text("{}")
    assert not launcher.is_new(["up", "-s", "sim"], stack_file, backend)


# Temporary files.


def test_each_command_has_a_folder_for_its_temporary_files_and_the_next_one_removes_it(
    project: Path, isthmus_home: Path
) -> None:
    ours = {"ISTHMUS_HOME": str(isthmus_home)}
    first, second = (Path(run_launcher(project, ours)["TMPDIR"]) for _ in range(2))
    assert first != second and first.parent == second.parent == isthmus_home / "pulumi" / "tmp"
    assert not first.exists()
    assert second.stat().st_mode & 0o777 == 0o700
    assert run_launcher(project, {**ours, "TMPDIR": "/theirs"})["TMPDIR"] == "/theirs"


def test_the_folder_of_a_running_command_stays(isthmus_home: Path) -> None:
    running, ended = (home.scratch() / str(pid) for pid in (os.getppid(), dead_pid()))
    for folder in (running, ended):
        folder.mkdir()
        (folder / "kubeconfig123").write_text("")
    scratch.clear()
    assert running.exists() and not ended.exists()


def test_what_outlives_a_command_does_not_count_on_its_folder(isthmus_home: Path) -> None:
    own = {"PATH": "/bin", "TMPDIR": str(scratch.folder())}
    assert scratch.outlasting(own) == {"PATH": "/bin"}
    assert scratch.outlasting({"TMPDIR": "/theirs"}) == {"TMPDIR": "/theirs"}
    assert scratch.outlasting({}) == {}
