"""The image of a kind node with every image inside that the platform needs, so that no cluster loads gigabytes.

Its base is kindest/node where an image registry can be reached. Where none can, it is built here from Debian's packages,
kind's own files for a node and our programs, and the images of the control plane are built too (the recipes in images/).
The images are put into the node's store by its own containerd, as `kind build node-image` does it. One image per content:
the tag says what is inside.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from isthmus.localcluster import images, recipes
from isthmus.localcluster.kind import docker
from isthmus.localcluster.locks import exclusive
from isthmus.localcluster.runtime import KUBERNETES_MINOR
from isthmus.specs.errors import NotReady
from isthmus.toolchain import home

NAME = "isthmus/node"
UPSTREAM = "docker.io/kindest/node:v1.36.4"
"""kind's own node image of our Kubernetes version; no digest, since none could be read here (2026-11-30)."""

RECIPES = Path(__file__).parent / "images"
STORE = "node"
"""Folder below <home>/images of what is only for nodes of kind clusters."""
BASE = "node"
"""The recipe of the node itself; the others there go into it."""
KWOK = "kwok"
SMALL = ("pause.tar", "volume-helper.tar")
"""Archives without a recipe (isthmus.localcluster.images makes them)."""

PULL_SECONDS = 900.0
IMPORT_SECONDS = 600.0
LOCK_SECONDS = 1800.0
COMMIT = ('ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]', "CMD []")
"""What a node runs, as in kind's own images (images/base/Dockerfile, v0.33): the container of the import ran a shell. The
rest, stop signal and environment, is the base's."""

_IMPORT = """
containerd --log-level error &
for _ in $(seq 100); do ctr version > /dev/null 2>&1 && break; sleep 0.1; done
for archive in "$@"; do
  ctr --namespace k8s.io images import --all-platforms --no-unpack --digests "$archive" > /dev/null || exit 1
done
kill %1
wait
rm -rf /run/containerd
"""

Progress = Callable[[str], None]


def ensure(progress: Progress) -> str:
    """The name of a node image with today's images in it, made if the engine has none.

    Raises:
        NotReady: it could not be built; the message says at which step.
    """
    images.ensure_small_images()
    with exclusive(home.images() / ".node.lock", what="the node image", doing="build it", seconds=LOCK_SECONDS):
        for base in (UPSTREAM, _base().image):
            if docker.has_image(found := _tag(base)):
                return found
        start = time.monotonic()
        base = _pulled(progress) or _built(progress)
        progress(f"node image: putting {len(_inside(base))} images into {base}")
        made = _filled(base, _tag(base))
        progress(f"node image: {made} made in {time.monotonic() - start:.0f} s")
        return made


def _tag(base: str) -> str:
    made_from = [base, *COMMIT, _IMPORT, *(recipes.key_of(recipe) for recipe in _recipes(base))]
    made_from += [str(images.archives().get(name)) for name in SMALL]
    return f"{NAME}:{KUBERNETES_MINOR}-{hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:12]}"


def _base() -> recipes.ImageRecipe:
    return next(recipe for recipe in recipes.required(RECIPES, store=STORE) if recipe.name == BASE)


def _recipes(base: str) -> list[recipes.ImageRecipe]:
    """What a node is made from: the platform's images and KWOK; one of our own also itself and the control plane."""
    own = recipes.required(RECIPES, store=STORE)
    return [*recipes.required(), *(recipe for recipe in own if base != UPSTREAM or recipe.name == KWOK)]


def _inside(base: str) -> list[Path]:
    """The archives that go into a node."""
    built = [recipes.archive_of(recipe) for recipe in _recipes(base) if recipe.name != BASE]
    return [*(home.images() / name for name in SMALL), *built]


def _pulled(progress: Progress) -> str | None:
    progress(f"node image: looking for {UPSTREAM}")
    try:
        docker.docker("pull", "--quiet", UPSTREAM, seconds=PULL_SECONDS)
    except NotReady as error:
        progress(f"node image: it cannot be pulled from here ({error.message}), so it is built")
        return None
    recipes.build_all(progress)
    recipes.build_all(progress, RECIPES, store=STORE, only=lambda recipe: recipe.name == KWOK)
    return UPSTREAM


def _built(progress: Progress) -> str:
    recipes.build_all(progress)
    recipes.build_all(progress, RECIPES, store=STORE)
    docker.docker("load", "--quiet", "--input", str(recipes.archive_of(_base())), seconds=IMPORT_SECONDS)
    return _base().image


def _filled(base: str, target: str) -> str:
    """A container of the base imports the archives and becomes the image."""
    container = f"isthmus-node-image-{secrets.token_hex(4)}"
    mounts = {str(archive.parent) for archive in _inside(base)}
    volumes = [f"--volume={folder}:{folder}:ro" for folder in sorted(mounts)]
    command = ["-c", _IMPORT, "import", *(str(archive) for archive in _inside(base))]
    try:
        docker.docker(
            "run", "--name", container, "--privileged", "--network=none", *volumes, "--entrypoint", "/bin/bash", base,
            *command, seconds=IMPORT_SECONDS,
        )  # fmt: skip
        changes = [f"--change={line}" for line in COMMIT]
        docker.docker("commit", *changes, container, target, seconds=IMPORT_SECONDS)
    finally:
        docker.docker("rm", "--force", "--volumes", container)
    return target
