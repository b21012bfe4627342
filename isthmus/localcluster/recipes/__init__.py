"""Container images built on this machine, without a container engine and without an image registry.

An image is described by workloads/images/<name>/image.yaml (recipe.py has the fields); `build_all` turns every recipe
into an archive that `ctr images import`, `docker load` and `kind load image-archive` take. Operator images hold the
programs that `isthmus install` put here, under upstream's exact names and tags, so that upstream's manifests work
unchanged. It will not push or import anything: isthmus.localcluster.images imports archives into clusters.

Needs root and the package mirror that apt is set up with (images with a Debian base only). Where that cannot be had,
each recipe has a Dockerfile beside it.
"""

from isthmus.localcluster.recipes.build import (
    Progress,
    archive_of,
    build_all,
    build_framework,
    framework,
    key_of,
    missing,
)
from isthmus.localcluster.recipes.recipe import FRAMEWORKS, ImageRecipe, required

__all__ = [
    "FRAMEWORKS",
    "ImageRecipe",
    "Progress",
    "archive_of",
    "build_all",
    "build_framework",
    "framework",
    "key_of",
    "missing",
    "required",
]
