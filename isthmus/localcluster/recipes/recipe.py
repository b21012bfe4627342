"""What an image is made of: the model of workloads/images/<name>/image.yaml, and reading it."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import isthmus
from isthmus.specs.errors import InvalidSpec
from isthmus.toolchain import state
from isthmus.toolchain.rows import Group
from isthmus.toolchain.table import TOOLS

FILE = "image.yaml"
ROOT = Path(isthmus.__file__).resolve().parents[1] / "workloads" / "images"
"""The recipes of this checkout that every local cluster gets the images of."""

FRAMEWORKS = "frameworks"
"""Folder in ROOT of the recipes that only some samples need, and below <home>/images of their archives: built, and brought
into a cluster, when a run first asks for one."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DebianBase(_Model):
    """A root file system of Debian packages with what they depend on, trimmed."""

    suite: str = Field(pattern=r"^[a-z]+$")
    packages: tuple[str, ...]
    remove: tuple[str, ...] = ()
    """Paths and patterns (relative to the root) that the image does without."""
    keep_libraries: tuple[str, ...] = ()
    """Patterns of shared libraries to keep though nothing is linked to them: they are loaded by name at run time."""
    check: tuple[str, ...] = ()
    """A command that must succeed in the trimmed root, so that trimming never takes away too much."""


class DebianFiles(_Model):
    """Single files out of a Debian package of this machine's release."""

    package: str
    take: dict[str, str]
    """Path in the package to path in the image."""


class ToolFiles(_Model):
    """A folder that came with an installed tool (isthmus.toolchain.home.share), with its files' modes."""

    tool: str
    source: str
    """Folder below the tool's share."""
    to: str
    """Folder in the image."""
    executable: tuple[str, ...] = ()
    """Patterns (relative to the folder) of files that are programs: Go modules carry no such mode."""


class Wheel(_Model):
    """Packages of the Python index, pinned by version and hash: single files out of them, or all but what is removed."""

    requirements: str
    """A requirements file beside the recipe, every line with its hash."""
    take: dict[str, str] = {}
    """Path in the installed package to path in the image."""
    to: str = ""
    """Folder in the image for the packages as a whole."""
    remove: tuple[str, ...] = ()
    """Paths and patterns of the packages that the image does without."""
    strip: tuple[str, ...] = ()
    """Shared libraries of the packages that lose their symbol tables, which only debuggers read."""


class Config(_Model):
    """The image's run configuration (OCI image specification v1.1, config)."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    user: str = ""
    """Numeric uid:gid; a kubelet refuses names when a pod must not run as root."""
    workdir: str = ""
    stop_signal: str = ""
    """What ends it; SIGTERM if not given."""


class ImageRecipe(_Model):
    """One image. The paths of `programs`, `copy_files` and `links` are absolute in the image."""

    name: str = Field(pattern=r"^[a-z][-a-z0-9]*$")
    """The recipe's folder; the archive is <name>.tar."""
    folder: Path
    store: str = ""
    """Folder below <home>/images of the archive; "" for images that every local cluster gets."""
    image: str = Field(pattern=r"^[a-z0-9.-]+(:\d+)?/[a-z0-9./_-]+:[A-Za-z0-9._-]+$")
    """Full name with tag. Never `latest`, which makes a kubelet pull it (case A25)."""
    about: str
    group: Group | None = None
    """The optional group whose programs go into it; without them there is no such image."""
    seconds: int = 5
    """How long the first build takes on 2 cores."""
    debian: DebianBase | None = None
    files: tuple[DebianFiles, ...] = ()
    programs: dict[str, str] = {}
    """Installed program to path in the image; the shared libraries it is linked to come with it."""
    copy_files: dict[str, str] = Field(default={}, alias="copy")
    """File (relative to the recipe's folder) to path in the image."""
    wheels: tuple[Wheel, ...] = ()
    tool_files: tuple[ToolFiles, ...] = ()
    links: dict[str, str] = {}
    """Path in the image to what the symbolic link there points to."""
    applets: str = ""
    """Path in the image of a busybox; every program it has gets a link beside it."""
    folders: dict[str, str] = {}
    """Folder to its mode in octal digits."""
    config: Config = Config()


def required(root: Path = ROOT, *, store: str = "") -> list[ImageRecipe]:
    """Every recipe whose programs are not of an optional group, or are installed, by name.

    Args:
        store: folder below <home>/images for their archives.

    Raises:
        InvalidSpec: a recipe is wrong; the file is named.
    """
    recipes = [load(path.parent, store=store) for path in sorted(root.glob(f"*/{FILE}"))]
    return [recipe for recipe in recipes if recipe.group is None or _installed(recipe.group)]


def _installed(group: Group) -> bool:
    return all(state.source(tool) for tool in TOOLS if tool.group == group)


def load(folder: Path, *, store: str = "") -> ImageRecipe:
    """The recipe in a folder.

    Raises:
        InvalidSpec: it is not valid YAML, or a field is wrong.
    """
    path = folder / FILE
    shown = f"{folder.name}/{FILE}"
    try:
        values: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        recipe = ImageRecipe.model_validate({**(values or {}), "name": folder.name, "folder": folder, "store": store})
    except (OSError, yaml.YAMLError, TypeError) as error:
        raise InvalidSpec(f"{shown} cannot be read: {error}", subject=shown, remedy=f"edit {shown}") from error
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise InvalidSpec(f"{shown} is not a recipe: {problems}", subject=shown, remedy=f"edit {shown}") from error
    if recipe.image.endswith(":latest"):
        raise InvalidSpec(f"{shown}: give the image a tag other than latest", subject=shown, remedy=f"edit {shown}")
    return recipe
