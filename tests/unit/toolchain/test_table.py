"""The table agrees with itself, and with the module files that pin the same versions a second time."""

import re
from pathlib import Path

import pytest

from isthmus.specs.errors import InvalidSpec
from isthmus.toolchain import table
from isthmus.toolchain.gobuild import MODULES
from isthmus.toolchain.rows import GROUPS, Tool
from isthmus.toolchain.table import DEBIAN_PACKAGES, TOOLS


def ids(tool: Tool) -> str:
    return tool.name


@pytest.mark.parametrize("tool", TOOLS, ids=ids)
def test_the_module_file_pins_the_table_s_version(tool: Tool) -> None:
    text = (MODULES / tool.name / "go.mod").read_text()
    assert re.search(
        rf"^\s*(require )?{re.escape(tool.go.module)} {re.escape(tool.go.version)}( //|$)", text, re.MULTILINE
    )
    assert f"go {table.GO_VERSION}\n" in text


@pytest.mark.parametrize("tool", TOOLS, ids=ids)
def test_every_built_package_is_declared_and_its_module_has_a_checksum(tool: Tool) -> None:
    text = (MODULES / tool.name / "go.mod").read_text()
    for _, package in tool.go.packages:
        if package == ".":
            assert (MODULES / tool.name / "main.go").is_file()
        else:
            assert re.search(rf"^(tool |\t){re.escape(package)}$", text, re.MULTILINE), package
    assert f"{tool.go.module} {tool.go.version} h1:" in (MODULES / tool.name / "go.sum").read_text()


def test_every_module_folder_has_a_row() -> None:
    assert {path.name for path in MODULES.iterdir() if path.is_dir()} == {tool.name for tool in TOOLS}


@pytest.mark.parametrize("tool", TOOLS, ids=ids)
def test_versions_agree_within_a_row(tool: Tool) -> None:
    if tool.name != "pulumi-kubernetes":  # its module has no tag for the plugin's version
        assert tool.go.version == f"v{tool.version}"
    assert tool.version in tool.plugin or not tool.plugin
    for found in re.findall(r"\d+\.\d+\.\d+", tool.go.ldflags):
        assert found == tool.version
    for _, probe in tool.probes:
        assert probe.minimum <= tuple(map(int, tool.version.split("."))) < probe.below


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool.release], ids=ids)
def test_a_release_has_a_checksum_and_every_program(tool: Tool) -> None:
    release = tool.release
    assert release is not None
    for address in (release.url, release.checksum):
        filled = address.format(version=tool.version, arch="amd64", program=tool.programs[0])
        assert filled.startswith("https://")
        assert tool.version in filled
    if release.members:
        assert set(tool.programs) <= {program for program, _ in release.members}
    else:
        assert "{program}" in release.url or len(tool.programs) == 1


def test_names_are_unique_and_groups_known() -> None:
    programs = [program for tool in TOOLS for program in tool.programs]
    assert len(programs) == len(set(programs))
    assert len({tool.name for tool in TOOLS}) == len(TOOLS)
    assert {tool.group for tool in TOOLS} == set(GROUPS)
    assert all(set(package.groups) <= set(GROUPS) for package in DEBIAN_PACKAGES)
    assert not {tool.name for tool in TOOLS} & set(GROUPS)


def test_every_package_can_be_recognised() -> None:
    assert all(package.program or package.file for package in DEBIAN_PACKAGES)


def test_select_takes_groups_names_and_what_they_need() -> None:
    assert {tool.name for tool in table.select(("training-operator",))} == {"training-operator", "kubernetes"}
    assert {tool.name for tool in table.select(("engine",))} == {"pulumi", "pulumi-kubernetes"}
    optional = {"karpenter", "mpi-operator", "jobset", "trainer", "versitygw", "fake-gcs-server", "rclone"}
    assert {tool.name for tool in TOOLS} - {tool.name for tool in table.select(())} == optional, "few need them"
    assert [tool.name for tool in table.select(("autoscaler",))] == ["karpenter"]
    assert {tool.name for tool in table.select(("objects",))} == {"versitygw", "fake-gcs-server"}
    assert {tool.name for tool in table.select(("trainjob",))} == {"jobset", "trainer", "kubernetes"}


def test_select_refuses_an_unknown_name_and_lists_the_known() -> None:
    with pytest.raises(
        InvalidSpec, match="engine, cluster, operators, images, autoscaler, mpi, trainjob, objects, bench, pulumi"
    ):
        table.select(("engin",))


def test_no_registry_or_private_address_in_the_module_files() -> None:
    for path in MODULES.rglob("go.mod"):
        assert "=> /" not in path.read_text()
        assert "=> ." not in path.read_text()


def test_the_wheel_s_go_is_the_pinned_one() -> None:
    assert tuple(map(int, table.GO_VERSION.split(".")[:2])) >= table.GO_MINIMUM
    assert Path(MODULES).is_dir()
