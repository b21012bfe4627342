"""Paths and environment: private folders, secrets written once, nothing of the user's own overruled."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from isthmus.specs.errors import NotFound
from isthmus.toolchain import home


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_folder_is_made_for_this_user_only(isthmus_home: Path) -> None:
    for make in (home.tools_bin, home.cache, home.images, home.state, home.accounts, home.clusters, home.logs):
        assert mode(make()) == 0o700
    assert mode(isthmus_home) == 0o700


def test_a_folder_that_is_there_keeps_its_mode(isthmus_home: Path) -> None:
    isthmus_home.mkdir()
    isthmus_home.chmod(0o755)
    home.state()
    assert mode(isthmus_home) == 0o755


def test_the_passphrase_is_random_private_and_written_once(isthmus_home: Path) -> None:
    first = home.passphrase_file()
    text = first.read_text()
    assert mode(first) == 0o600
    assert len(text) >= 32
    assert home.passphrase_file().read_text() == text
    assert text != home.SHIPPED_PASSPHRASE


def test_an_empty_environment_gets_everything(isthmus_home: Path) -> None:
    given = home.environment({"PATH": "/usr/bin"})
    assert given["PATH"] == f"{isthmus_home}/tools/bin:{Path(sys.executable).parent}:/usr/bin"
    assert given["PULUMI_HOME"] == f"{isthmus_home}/pulumi"
    assert given["PULUMI_BACKEND_URL"] == f"file://{isthmus_home}/state"
    assert Path(given["PULUMI_CONFIG_PASSPHRASE_FILE"]).is_file()


@pytest.mark.parametrize(
    ("user", "untouched"),
    [
        ({"PULUMI_HOME": "/p"}, "PULUMI_HOME"),
        ({"PULUMI_BACKEND_URL": "s3://b"}, "PULUMI_BACKEND_URL"),
        ({"PULUMI_ACCESS_TOKEN": "t"}, "PULUMI_BACKEND_URL"),
        ({"PULUMI_CONFIG_PASSPHRASE": ""}, "PULUMI_CONFIG_PASSPHRASE_FILE"),
        ({"PULUMI_CONFIG_PASSPHRASE_FILE": "/f"}, "PULUMI_CONFIG_PASSPHRASE_FILE"),
        ({"PULUMI_SKIP_UPDATE_CHECK": "false"}, "PULUMI_SKIP_UPDATE_CHECK"),
    ],
)
def test_what_the_user_has_chosen_stays(isthmus_home: Path, user: dict[str, str], untouched: str) -> None:
    assert untouched not in home.environment({"PATH": "/bin", **user})


def test_an_earlier_login_is_a_choice_of_back_end(isthmus_home: Path) -> None:
    credentials = home.pulumi_home() / "credentials.json"
    credentials.write_text(json.dumps({"current": "s3://state"}))
    assert "PULUMI_BACKEND_URL" not in home.environment({})
    credentials.write_text("{broken")
    assert "PULUMI_BACKEND_URL" in home.environment({})


def test_our_tools_come_first_and_once(isthmus_home: Path) -> None:
    ours = [str(home.tools_bin()), str(Path(sys.executable).parent)]
    path = home.environment({"PATH": os.pathsep.join(["/a", *ours, "/b"])})["PATH"]
    assert path.split(os.pathsep) == [*ours, "/a", "/b"]


def test_an_installed_program_goes_before_path(isthmus_home: Path) -> None:
    program = home.tools_bin() / "ls"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert home.tool("ls") == program
    assert home.tool("cat").name == "cat"


def test_a_program_that_is_nowhere_says_what_to_type(isthmus_home: Path) -> None:
    with pytest.raises(NotFound) as caught:
        home.tool("no-such-program")
    assert caught.value.remedy == "isthmus install"


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden"])
def test_an_account_cannot_leave_its_folder(isthmus_home: Path, name: str) -> None:
    with pytest.raises(ValueError, match="account"):
        home.account_file(name)
