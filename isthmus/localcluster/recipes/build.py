"""From recipes to archives. An unchanged recipe is not built again, and a changed program does not rebuild the packages.

An image has up to two layers: the Debian base (minutes, changes rarely) and the files on top (seconds). Beside
<home>/images/<name>.tar lies <name>.json, which says what the archive was made from; a layer made from the same is taken
from the old archive. An archive is replaced whole or not at all, and what a killed build leaves behind is removed by the
next one.
"""

import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isthmus.localcluster.locks import exclusive
from isthmus.localcluster.recipes import archive, debian
from isthmus.localcluster.recipes.archive import EPOCH, Layer
from isthmus.localcluster.recipes.recipe import FRAMEWORKS, ROOT, ImageRecipe, ToolFiles, Wheel, required
from isthmus.specs.errors import InvalidSpec, IsthmusError, NotReady
from isthmus.toolchain import home

Progress = Callable[[str], None]
"""Told, in one line each, what is being built and how long it took."""

VERSION = 1
"""Part of every key: raised when this package builds something else from the same recipe."""

_FILES_FIELDS = {"files", "programs", "copy_files", "wheels", "tool_files", "links", "applets", "folders"}
"""Fields of a recipe that make the layer on top of the base."""

LOCK_SECONDS = 1800.0
"""How long to wait for another process that is building images."""


def archive_of(recipe: ImageRecipe) -> Path:
    """Where the recipe's archive is, or will be."""
    return home.images() / recipe.store / f"{recipe.name}.tar"


def missing(root: Path = ROOT, *, store: str = "") -> list[ImageRecipe]:
    """Recipes without an archive that was made from just this recipe.

    Raises:
        InvalidSpec: a recipe is wrong.
        NotFound: a program that goes into an image is not installed.
    """
    return [recipe for recipe in required(root, store=store) if not _current(recipe)]


def framework(image: str) -> ImageRecipe | None:
    """The recipe of an image that is built when a run first asks for it; None for every other image."""
    recipes = required(ROOT / FRAMEWORKS, store=FRAMEWORKS)
    return next((recipe for recipe in recipes if recipe.image == image), None)


def build_framework(recipe: ImageRecipe, progress: Progress) -> Path:
    """Build one of those images if it is missing. Returns its archive. Errors as of `build_all`."""
    if _current(recipe):  # without the lock, which a build of another image may hold for minutes
        return archive_of(recipe)
    return build_all(progress, recipe.folder.parent, store=recipe.store, only=lambda one: one.name == recipe.name)[0]


def build_all(
    progress: Progress,
    root: Path = ROOT,
    *,
    store: str = "",
    only: Callable[[ImageRecipe], bool] = lambda recipe: True,
) -> list[Path]:
    """Build what is missing, the quick ones first. A failed one does not stop the others.

    Args:
        progress: hears what happens.
        store: folder below <home>/images for the archives.
        only: which recipes; default all.

    Returns:
        the archives of those recipes.

    Raises:
        InvalidSpec: a recipe is wrong.
        NotReady: images could not be built; each is named with the reason, the others are there.
    """
    recipes = sorted(filter(only, required(root, store=store)), key=lambda recipe: recipe.seconds)
    failed: list[IsthmusError] = []
    with exclusive(home.images() / ".build.lock", what="the images", doing="build images", seconds=LOCK_SECONDS):
        for recipe in recipes:
            try:
                _build(recipe, progress)
            except IsthmusError as error:
                progress(f"image {recipe.name}: {error.message}")
                failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise NotReady(
            "; ".join(error.message for error in failed), subject="images", remedy=failed[0].remedy
        ) from failed[0]
    return [archive_of(recipe) for recipe in recipes]


def _build(recipe: ImageRecipe, progress: Progress) -> None:
    if _current(recipe):
        return
    progress(f"image {recipe.name}: building ({recipe.about}; about {recipe.seconds} s the first time)")
    start = time.monotonic()
    archive_of(recipe).parent.mkdir(mode=0o700, exist_ok=True)
    with _work_folder(recipe) as work, _disk_errors(recipe):
        layers = [
            (_layer(recipe, kind, key, work), work / f"{kind}.layer") for kind, key in _layer_keys(recipe).items()
        ]
        archive.write_archive(archive_of(recipe), recipe.image, _config(recipe), layers, _architecture())
        made = {"key": key_of(recipe), "image": recipe.image, "layers": archive.as_json([layer for layer, _ in layers])}
        _note(recipe).write_text(json.dumps(made, indent=1), encoding="utf-8")
    size = archive_of(recipe).stat().st_size >> 20
    progress(f"image {recipe.name}: built in {time.monotonic() - start:.0f} s, {size} MiB")


def _layer(recipe: ImageRecipe, kind: str, key: str, work: Path) -> Layer:
    """One layer as a file in `work`: out of the old archive if it was made from the same, else built."""
    file = work / f"{kind}.layer"
    for old in _made(recipe).get("layers", []):
        layer = Layer(**old)
        if layer.key == key and archive.extract_layer(archive_of(recipe), layer, file):
            return layer
    root = work / kind
    root.mkdir(mode=0o755)
    if kind == "base":
        assert recipe.debian is not None
        root.rmdir()  # mmdebstrap makes it
        debian.make_root(recipe.debian, root, home.logs() / f"image-{recipe.name}.log")
    else:
        _fill(recipe, root, work)
    return archive.write_layer(root, file, key, keep_owners=kind == "base")


def _fill(recipe: ImageRecipe, root: Path, work: Path) -> None:
    for folder_wanted in recipe.tool_files:  # first, so that a recipe's own file replaces one of a tool
        for file, place, file_mode in _tool_files(folder_wanted):
            _put(file, root, place, mode=file_mode)
    for wanted in recipe.files:
        debian.take_files(wanted, work, root)
    for program, path in recipe.programs.items():
        _put(home.tool(program), root, path, mode=0o755)
        for library in _libraries(home.tool(program)):
            _put(library.resolve(), root, str(library), mode=0o755)
    for source, path in recipe.copy_files.items():
        _put(_source(recipe, source), root, path, mode=0o644)
    for wheel in recipe.wheels:
        _take_wheel(recipe, wheel, root, work)
    for path, target in (recipe.links | _applets(recipe, root)).items():
        link = root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    for path, mode in recipe.folders.items():
        folder = root / path.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(int(mode, 8))


def _tool_files(wanted: ToolFiles) -> list[tuple[Path, str, int]]:
    """Every file of the folder: where it is, its path in the image, its mode."""
    folder = home.share(wanted.tool) / wanted.source
    found = []
    for source in sorted(path for path in folder.rglob("*") if path.is_file()):
        below = source.relative_to(folder)
        program = any(below.match(pattern) for pattern in wanted.executable)
        found.append((source, f"{wanted.to.rstrip('/')}/{below}", 0o755 if program else 0o644))
    if not found:
        raise InvalidSpec(f"{wanted.tool} has no files in {wanted.source}", subject=f"tool {wanted.tool}")
    return found


def _applets(recipe: ImageRecipe, root: Path) -> dict[str, str]:
    if not recipe.applets:
        return {}
    program = root / recipe.applets.lstrip("/")
    done = subprocess.run([str(program), "--list"], capture_output=True, text=True, check=True)
    names = [name for name in done.stdout.split() if name != program.name]
    return {str(Path(recipe.applets).with_name(name)): program.name for name in names}


def _put(source: Path, root: Path, path: str, *, mode: int) -> None:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)
    os.utime(target, (EPOCH, EPOCH))


def _source(recipe: ImageRecipe, name: str) -> Path:
    path = (recipe.folder / name).resolve()
    if not path.is_file():
        raise InvalidSpec(f"image {recipe.name} copies {name}, which is not there", subject=f"image {recipe.name}")
    return path


def _libraries(program: Path) -> list[Path]:
    """The loader and the shared libraries a program is linked to on this machine; none for a static one."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    if done.returncode:
        return []
    return [Path(path) for path in re.findall(r"(?:=> |^\s*)(/\S+)", done.stdout, re.MULTILINE)]


def _take_wheel(recipe: ImageRecipe, wheel: Wheel, root: Path, work: Path) -> None:
    folder = work / "wheel"
    requirements = _source(recipe, wheel.requirements)
    done = subprocess.run(_installer(folder, requirements), capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReady(
            f"the Python index does not give what {requirements.name} asks for: {done.stderr.strip()[-500:]}",
            subject=f"image {recipe.name}",
            remedy="isthmus install images",
        )
    for source, path in wheel.take.items():
        if not (folder / source).is_file():
            raise InvalidSpec(f"image {recipe.name}: the package has no {source}", subject=f"image {recipe.name}")
        _put(folder / source, root, path, mode=0o644)
    if wheel.to:
        for pattern in wheel.remove:
            for unused in sorted(folder.glob(pattern)):
                shutil.rmtree(unused) if unused.is_dir() else unused.unlink()
        for name in wheel.strip:
            subprocess.run(["strip", "--strip-unneeded", str(folder / name)], capture_output=True, check=True)
        _compile(folder)
        place = root / wheel.to.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, place, dirs_exist_ok=True)
    shutil.rmtree(folder)


def _compile(folder: Path) -> None:
    """Compile modules, so that no container has to at every start. By hash and not by time: layers cut times."""
    for old in folder.rglob("__pycache__"):
        shutil.rmtree(old)
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(folder)]
    subprocess.run(command, capture_output=True, check=False)  # some packages carry modules for other Pythons


def _installer(folder: Path, requirements: Path) -> list[str]:
    """pip or uv, told to unpack the very files whose hashes are pinned (those for CPython 3.11 on x86-64)."""
    common = ["--quiet", "--no-deps", "--require-hashes", "--target", str(folder), "--requirement", str(requirements)]
    if importlib.util.find_spec("pip"):
        pinned = ["--only-binary=:all:", "--platform=manylinux2014_x86_64", "--python-version=3.11"]
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *pinned, *common]
    uv = Path(sys.executable).with_name("uv")
    program = str(uv) if uv.exists() else "uv"
    pinned = ["--only-binary=:all:", "--python-platform=x86_64-manylinux2014", "--python-version=3.11"]
    return [program, "pip", "install", *pinned, *common]


def _config(recipe: ImageRecipe) -> dict[str, Any]:
    config = recipe.config
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    values: dict[str, Any] = {"Env": [path, *(f"{name}={value}" for name, value in config.env.items())]}
    if config.entrypoint:
        values["Entrypoint"] = list(config.entrypoint)
    if config.command:
        values["Cmd"] = list(config.command)
    if config.user:
        values["User"] = config.user
    if config.workdir:
        values["WorkingDir"] = config.workdir
    if config.stop_signal:
        values["StopSignal"] = config.stop_signal
    return values


def _layer_keys(recipe: ImageRecipe) -> dict[str, str]:
    """The layers of an image, lowest first, with what each is made from as a digest."""
    keys = {}
    if recipe.debian is not None:
        keys["base"] = _digest(VERSION, _architecture(), recipe.debian.model_dump(mode="json"))
    values = recipe.model_dump(mode="json", include=_FILES_FIELDS)
    if any(values.values()):
        sources = [_source(recipe, name) for name in recipe.copy_files]
        sources += [home.tool(program).resolve() for program in recipe.programs]
        sources += [_source(recipe, wheel.requirements) for wheel in recipe.wheels]
        sources += [source for wanted in recipe.tool_files for source, _, _ in _tool_files(wanted)]
        keys["files"] = _digest(VERSION, _architecture(), values, [_file_digest(path) for path in sources])
    if not keys:
        raise InvalidSpec(f"image {recipe.name} would be empty", subject=f"image {recipe.name}")
    return keys


def key_of(recipe: ImageRecipe) -> str:
    """What the recipe's image is made from, as a digest: the recipe, its files and the installed programs in it."""
    return _digest(_layer_keys(recipe), recipe.image, _config(recipe))


def _current(recipe: ImageRecipe) -> bool:
    return archive_of(recipe).is_file() and _made(recipe).get("key") == key_of(recipe)


def _note(recipe: ImageRecipe) -> Path:
    return archive_of(recipe).with_suffix(".json")


def _made(recipe: ImageRecipe) -> dict[str, Any]:
    try:
        made = json.loads(_note(recipe).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return made if isinstance(made, dict) else {}


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


@contextmanager
def _work_folder(recipe: ImageRecipe) -> Iterator[Path]:
    folder = home.images() / ".work" / recipe.store / recipe.name
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _disk_errors(recipe: ImageRecipe) -> Iterator[None]:
    """A full disk in words. The old archive, if there was one, is still there."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NotReady(
            f"the disk is full; image {recipe.name} was not built",
            subject=str(home.images()),
            remedy="isthmus clean, or free some disk, then isthmus install images",
        ) from error
