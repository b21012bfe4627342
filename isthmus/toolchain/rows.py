"""What a row of the table says: a tool, the ways to get it, and how to recognise it. Data only."""

from dataclasses import dataclass
from typing import Literal

Group = Literal["engine", "cluster", "operators", "images", "autoscaler", "mpi", "trainjob", "objects", "bench"]
GROUPS: tuple[Group, ...] = (
    "engine",
    "cluster",
    "operators",
    "images",
    "autoscaler",
    "mpi",
    "trainjob",
    "objects",
    "bench",
)
OPTIONAL: frozenset[Group] = frozenset({"autoscaler", "mpi", "trainjob", "objects", "bench"})
"""Groups of programs that few need: installed when they are named."""


@dataclass(frozen=True)
class GoBuild:
    """How to build a tool from the Go module proxy."""

    module: str
    """Path of the module that is pinned."""
    version: str
    """Its version, with the leading v."""
    packages: tuple[tuple[str, str], ...]
    """(program, package) pairs; a package starting with "." is in modules/<name> itself."""
    tags: str = ""
    ldflags: str = "-s -w"
    cgo: bool = False


@dataclass(frozen=True)
class Release:
    """Where the publisher offers the built program, and its checksum."""

    url: str
    checksum: str
    """A file that has the SHA-256 of `url`: alone, or on a line that ends in the file's name."""
    members: tuple[tuple[str, str], ...] = ()
    """(program, path in the archive); empty when `url` is the program itself."""
    arch: tuple[tuple[str, str], ...] = ()
    """The publisher's own words for amd64 and arm64, where they differ."""


@dataclass(frozen=True)
class Probe:
    """Asking a program on PATH for its version. `minimum` <= version < `below` fits."""

    arguments: tuple[str, ...]
    pattern: str
    minimum: tuple[int, ...]
    below: tuple[int, ...]


@dataclass(frozen=True)
class Shared:
    """Files of the tool's module that we use, laid under <tool>/share."""

    source: str
    """File or folder in the module."""
    target: str
    """File or folder under share/."""
    rendered: bool = False
    """Run `kubectl kustomize` over the folder; the target is the resulting YAML file."""


@dataclass(frozen=True)
class Tool:
    """One row: a set of programs that come together in one version."""

    name: str
    version: str
    group: Group
    go: GoBuild
    seconds: int
    """Expected time of the Go build on 2 cores."""
    size_mb: int
    """Disk that the installed tool takes."""
    about: str
    release: Release | None = None
    probes: tuple[tuple[str, Probe], ...] = ()
    """(program, probe); only a tool with a probe for every program may come from PATH."""
    shared: tuple[Shared, ...] = ()
    needs: tuple[str, ...] = ()
    """Tools that must be there first."""
    plugin: str = ""
    """Folder under PULUMI_HOME/plugins where the program is linked."""
    linked: bool = True
    """Whether tools/bin has links to the programs."""

    @property
    def folder(self) -> str:
        """Name of the folder under tools/."""
        return f"{self.name}-{self.version}"

    @property
    def programs(self) -> tuple[str, ...]:
        """Names of the programs in bin/."""
        return tuple(program for program, _ in self.go.packages)


@dataclass(frozen=True)
class DebianPackage:
    """A package of the distribution. `program` (or a file) on the machine shows that it is there, whoever put it."""

    name: str
    groups: tuple[Group, ...]
    about: str
    program: str = ""
    file: str = ""
    alternatives: tuple[str, ...] = ()
    """Other files that do as well."""
