"""Recipes, layers and archives: nothing here needs root, a network or a container runtime."""

import errno
import hashlib
import io
import json
import os
import shutil
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.localcluster import recipes
from isthmus.localcluster.recipes import archive, build, debian, elf
from isthmus.localcluster.recipes.recipe import FRAMEWORKS, ROOT, DebianBase, load, required
from isthmus.specs.errors import InvalidSpec, NotFound, NotReady
from operators import device_plugin, training_operator

SMALL = {"image": "example.org/small:1", "about": "a file", "copy": {"hello.txt": "/opt/hello.txt"}}


def write_recipe(root: Path, name: str = "small", **changes: Any) -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "image.yaml").write_text(yaml.safe_dump({**SMALL, **changes}))
    (folder / "hello.txt").write_text("hello\n")
    return folder


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    return tmp_path / "recipes"


def built(root: Path) -> list[str]:
    said: list[str] = []
    recipes.build_all(said.append, root)
    return said


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as source:
        return {item.name: source.extractfile(item).read() for item in source if item.isfile()}  # type: ignore[union-attr]


# ---- the recipes of this repository ----


def test_every_recipe_is_readable_and_has_what_it_copies() -> None:
    found = required()
    assert {recipe.name for recipe in found if recipe.group is None} == {
        "busybox",
        "device-plugin",
        "node-feature-discovery",
        "torch",
        "training-operator",
    }
    for recipe in found:
        for source in recipe.copy_files:
            assert (recipe.folder / source).is_file(), source


def test_operator_images_have_the_names_the_manifests_use() -> None:
    named = {recipe.image for recipe in required()}
    assert {*device_plugin.images(), *training_operator.images()} <= named


def test_sample_workloads_use_an_image_that_is_built() -> None:
    named = {recipe.image: recipe for recipe in (*required(), *required(ROOT / FRAMEWORKS))}
    samples = Path(__file__).parents[3] / "workloads" / "samples"
    for path in samples.glob("*/workload.yaml"):
        workload = yaml.safe_load(path.read_text())
        [program] = [word for word in workload["command"] if word.endswith(".py")]
        assert program in named[workload["image"]].copy_files.values(), path


def test_images_of_frameworks_are_built_only_when_a_run_asks() -> None:
    found = {recipe.name: recipe for recipe in required(ROOT / FRAMEWORKS, store=FRAMEWORKS)}
    assert set(found) == {"mpi", "sklearn", "tensorflow"}
    assert not {recipe.image for recipe in found.values()} & {recipe.image for recipe in required()}
    for recipe in found.values():
        for source in recipe.copy_files:
            assert (recipe.folder / source).is_file(), source
        assert recipe.config.user == "65532:65532"
        assert recipes.framework(recipe.image) == recipe
        assert recipes.archive_of(recipe).parent.name == FRAMEWORKS
    assert recipes.framework("docker.io/isthmus/torch:1.13.1") is None


@pytest.mark.parametrize("path", sorted(ROOT.glob("**/Dockerfile")), ids=lambda path: path.parent.name)
def test_a_dockerfile_copies_what_the_recipe_copies(path: Path) -> None:
    recipe = load(path.parent)
    text = path.read_text()
    for source, target in recipe.copy_files.items():
        file = (recipe.folder / source).resolve().relative_to(ROOT.parents[1])
        assert str(file) in text, target
    for package in recipe.debian.packages if recipe.debian else ():
        assert package in text or package == "libstdc++6"  # which Docker's Debian has


def test_the_training_image_has_no_named_user() -> None:
    (recipe,) = [recipe for recipe in required() if recipe.name == "torch"]
    assert recipe.config.user == "65532:65532"
    assert (recipe.folder / "Dockerfile").is_file()
    assert "--hash=sha256:" in (recipe.folder / recipe.wheels[0].requirements).read_text()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"image": "example.org/small:latest"}, "latest"),
        ({"image": "small"}, "image"),
        ({"colour": "green"}, "colour"),
        ({"debian": {"suite": "BOOK worm", "packages": []}}, "suite"),
    ],
)
def test_wrong_recipes_are_refused_by_name(root: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidSpec, match=named):
        load(write_recipe(root, **changes))


def test_a_recipe_that_is_not_yaml_is_refused(root: Path) -> None:
    folder = write_recipe(root)
    (folder / "image.yaml").write_text("image: [")
    with pytest.raises(InvalidSpec, match=r"small/image\.yaml"):
        load(folder)


# ---- archives ----


def test_an_archive_is_a_valid_oci_layout_and_a_docker_archive(root: Path) -> None:
    write_recipe(root, config={"entrypoint": ["/bin/x"], "user": "1:1", "env": {"A": "b"}})
    built(root)
    (recipe,) = required(root)
    files = members(recipes.archive_of(recipe))
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "example.org/small:1"
    manifest = json.loads(files[f"blobs/sha256/{entry['digest'].removeprefix('sha256:')}"])
    for part in (manifest["config"], *manifest["layers"]):
        blob = files[f"blobs/sha256/{part['digest'].removeprefix('sha256:')}"]
        assert len(blob) == part["size"]
        assert f"sha256:{hashlib.sha256(blob).hexdigest()}" == part["digest"]
    config = json.loads(files[f"blobs/sha256/{manifest['config']['digest'].removeprefix('sha256:')}"])
    assert config["config"]["Entrypoint"] == ["/bin/x"]
    assert (config["config"]["User"], config["config"]["Env"][-1]) == ("1:1", "A=b")
    layer = files[f"blobs/sha256/{manifest['layers'][0]['digest'].removeprefix('sha256:')}"]
    import gzip

    plain = gzip.decompress(layer)
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(plain).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        assert tar.extractfile("opt/hello.txt").read() == b"hello\n"  # type: ignore[union-attr]
    (docker,) = json.loads(files["manifest.json"])
    assert docker["RepoTags"] == ["example.org/small:1"]
    assert all(name in files for name in (docker["Config"], *docker["Layers"]))


def test_equal_content_is_equal_bytes(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_recipe(root, links={"/bin/a": "b"})
    built(root)
    (recipe,) = required(root)
    first = recipes.archive_of(recipe).read_bytes()
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "elsewhere"))
    os.utime(root / "small" / "hello.txt", (1, 1))
    built(root)
    assert recipes.archive_of(recipe).read_bytes() == first


def test_layers_keep_modes_links_and_old_times_but_no_new_ones(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    (folder / "usr" / "bin").mkdir(parents=True)
    tool = folder / "usr" / "bin" / "tool"
    tool.write_text("x")
    tool.chmod(0o4755)
    os.utime(tool, (1_000_000_000, 1_000_000_000))
    (folder / "new").write_text("y")
    (folder / "bin").symlink_to("usr/bin")
    os.mkfifo(folder / "pipe")
    layer = archive.write_layer(folder, tmp_path / "layer", "k")
    with tarfile.open(tmp_path / "layer") as tar:
        found = {item.name: item for item in tar}
    assert "pipe" not in found
    assert (found["usr/bin/tool"].mode, found["usr/bin/tool"].mtime) == (0o4755, 1_000_000_000)
    assert found["new"].mtime == archive.EPOCH
    assert (found["bin"].issym(), found["bin"].linkname) == (True, "usr/bin")
    assert layer.size == (tmp_path / "layer").stat().st_size


# ---- building ----


def test_an_unchanged_recipe_is_not_built_again(root: Path) -> None:
    write_recipe(root)
    assert built(root)
    (recipe,) = required(root)
    before = recipes.archive_of(recipe).stat().st_mtime_ns
    assert built(root) == []
    assert recipes.archive_of(recipe).stat().st_mtime_ns == before
    assert recipes.missing(root) == []


@pytest.mark.parametrize("what", ["file", "name", "config", "archive", "note"])
def test_whatever_changes_is_built_again(root: Path, what: str) -> None:
    folder = write_recipe(root)
    built(root)
    (recipe,) = required(root)
    if what == "file":
        (folder / "hello.txt").write_text("other\n")
    elif what == "name":
        write_recipe(root, image="example.org/small:2")
    elif what == "config":
        write_recipe(root, config={"user": "7:7"})
    elif what == "archive":
        recipes.archive_of(recipe).unlink()
    else:
        recipes.archive_of(recipe).with_suffix(".json").write_text("{")
    assert [recipe.name for recipe in recipes.missing(root)] == ["small"]
    assert built(root)
    assert recipes.missing(root) == []


def test_a_changed_file_does_not_rebuild_the_base(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def make_root(base: DebianBase, target: Path, log: Path) -> None:
        made.append(target)
        (target / "etc").mkdir(parents=True)
        (target / "etc" / "base").write_text("base")

    monkeypatch.setattr(debian, "make_root", make_root)
    folder = write_recipe(root, debian={"suite": "bookworm", "packages": ["x"]})
    built(root)
    first = json.loads((recipes.archive_of(load(folder)).with_suffix(".json")).read_text())["layers"]
    (folder / "hello.txt").write_text("other\n")
    built(root)
    second = json.loads((recipes.archive_of(load(folder)).with_suffix(".json")).read_text())["layers"]
    assert len(made) == 1
    assert first[0] == second[0]
    assert first[1]["digest"] != second[1]["digest"]


def test_a_killed_build_leaves_nothing_that_the_next_one_trips_over(root: Path) -> None:
    write_recipe(root)
    left = build.home.images() / ".work" / "small" / "base"
    left.mkdir(parents=True)
    (left / "half").write_text("x")
    built(root)
    assert not (build.home.images() / ".work" / "small").exists()


def test_one_failure_leaves_the_others_built(root: Path) -> None:
    write_recipe(root, "good")
    write_recipe(root, "bad", copy={"absent.txt": "/x"})
    with pytest.raises(InvalidSpec, match=r"absent\.txt"):
        built(root)
    assert recipes.archive_of(load(root / "good")).is_file()


def test_a_missing_program_is_named_with_its_cure(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    write_recipe(root, programs={"no-such-program": "/x"})
    with pytest.raises(NotFound, match="no-such-program") as caught:
        built(root)
    assert "isthmus install" in caught.value.remedy


def test_a_full_disk_is_said_and_keeps_the_old_archive(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_recipe(root)
    built(root)
    old = recipes.archive_of(load(folder)).read_bytes()
    (folder / "hello.txt").write_text("other\n")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archive, "write_archive", full)
    with pytest.raises(NotReady, match="disk is full"):
        built(root)
    assert recipes.archive_of(load(folder)).read_bytes() == old
    assert not (build.home.images() / ".work" / "small").exists()


# ---- trimming ----


def shared_object(path: Path, *needed: str) -> None:
    """Write the smallest ELF file that says which libraries it needs."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in needed)
    offsets = [names.index(name.encode()) for name in needed]
    start = 64 + 2 * 56
    dynamic = b"".join(struct.pack("<QQ", 1, offset) for offset in offsets)
    dynamic += struct.pack("<QQQQ", 5, start, 0, 0)
    begin = start + len(names)
    size = begin + len(dynamic)
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    )
    load_segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    dynamic_segment = struct.pack("<IIQQQQQQ", 2, 6, begin, begin, begin, len(dynamic), len(dynamic), 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + load_segment + dynamic_segment + names + dynamic)


def test_needed_libraries_are_read_from_the_file(tmp_path: Path) -> None:
    shared_object(tmp_path / "a", "libb.so.1", "libc.so.6")
    assert elf.needed(tmp_path / "a") == {"libb.so.1", "libc.so.6"}
    (tmp_path / "text").write_text("#!/bin/sh\n")
    assert elf.needed(tmp_path / "text") == set()
    (tmp_path / "broken").write_bytes(b"\x7fELF\x02\x01")
    assert elf.needed(tmp_path / "broken") == set()


@pytest.mark.skipif(shutil.which("ldd") is None, reason="no program to compare with")
def test_needed_libraries_of_a_real_program() -> None:
    assert any(name.startswith("libc.so") for name in elf.needed(Path("/bin/sh").resolve()))


def test_trimming_ends_where_an_alternative_has_its_link_s_own_name(tmp_path: Path) -> None:
    """As Debian's libmpi.so: /usr/lib/.../libx.so -> /etc/alternatives/libx.so -> the library's own folder."""
    lib = tmp_path / "usr" / "lib" / "x86_64-linux-gnu"
    shared_object(lib / "x" / "libx.so")
    (tmp_path / "etc" / "alternatives").mkdir(parents=True)
    (tmp_path / "etc" / "alternatives" / "libx.so").symlink_to("/usr/lib/x86_64-linux-gnu/x/libx.so")
    (lib / "libx.so").symlink_to("/etc/alternatives/libx.so")
    debian.trim(DebianBase(suite="x", packages=(), keep_libraries=("libx*",)), tmp_path)
    assert (lib / "libx.so").is_symlink()


def test_trimming_keeps_what_programs_need_and_no_more(tmp_path: Path) -> None:
    lib = tmp_path / "usr" / "lib" / "x86_64-linux-gnu"
    shared_object(tmp_path / "usr" / "bin" / "python3", "libdirect.so.1")
    shared_object(lib / "libdirect.so.1.0", "libindirect.so.2", "libalt.so.3")
    (lib / "libdirect.so.1").symlink_to("libdirect.so.1.0")
    shared_object(lib / "libindirect.so.2")
    shared_object(lib / "sub" / "libalt.so.3", "libofalt.so")
    (tmp_path / "etc" / "alternatives").mkdir(parents=True)
    (tmp_path / "etc" / "alternatives" / "alt").symlink_to("/usr/lib/x86_64-linux-gnu/sub/libalt.so.3")
    (lib / "libalt.so.3").symlink_to("/etc/alternatives/alt")
    shared_object(lib / "libofalt.so")
    shared_object(lib / "libunused.so.9", "libonlyunused.so")
    shared_object(lib / "libonlyunused.so")
    shared_object(lib / "libbyname.so.1")
    shared_object(lib / "libnss_files.so.2")
    module = tmp_path / "usr" / "lib" / "python3" / "module.so"
    module.parent.mkdir(parents=True)
    module.symlink_to("../x86_64-linux-gnu/libbyname.so.1")
    (tmp_path / "usr" / "share" / "doc").mkdir(parents=True)
    debian.trim(DebianBase(suite="x", packages=(), remove=("usr/share/doc",), keep_libraries=("libnss_*",)), tmp_path)
    assert sorted(path.name for path in lib.iterdir()) == [
        "libalt.so.3", "libbyname.so.1", "libdirect.so.1", "libdirect.so.1.0", "libindirect.so.2", "libnss_files.so.2",
        "libofalt.so", "sub",
    ]  # fmt: skip
    assert not (tmp_path / "usr" / "share" / "doc").exists()


def test_only_root_builds_a_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotReady, match="root"):
        debian.make_root(DebianBase(suite="bookworm", packages=("x",)), tmp_path / "root", tmp_path / "log")


def test_a_busybox_gets_a_link_for_every_program_it_has(root: Path) -> None:
    folder = write_recipe(root, applets="/bin/box", folders={"/tmp": "1777"}, copy={"box": "/bin/box"})
    recipe = load(folder)
    (folder / "box").write_text("#!/bin/sh\nprintf 'sh\\nnc\\nbox\\n'\n")
    tree = root / "tree"
    tree.mkdir()

    def put(source: Path, into: Path, path: str, *, mode: int) -> None:
        target = into / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_put", put)
        build._fill(recipe, tree, root)
    assert {path.name: os.readlink(path) for path in (tree / "bin").iterdir() if path.is_symlink()} == {
        "sh": "box",
        "nc": "box",
    }
    assert (tree / "tmp").stat().st_mode & 0o7777 == 0o1777
