"""`isthmus install`: build or fetch the programs that isthmus runs."""

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from cyclopts import Parameter


def install(
    *groups: str,
    no_releases: Annotated[bool, Parameter(negative=())] = False,
    keep_cache: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Build or fetch the programs that isthmus runs, under ISTHMUS_HOME.

    Each comes from PATH if its version fits, else from its publisher if its checksum can be had, else from the Go module
    proxy. Run it again after an interruption: it goes on. Comparing prices needs none of them.

    Parameters
    ----------
    groups
        engine (Pulumi), cluster (Kubernetes and what it runs on), operators, images; only when named: autoscaler
        (Karpenter, for `isthmus sim autoscale`), mpi (MPIJob), trainjob (Kubeflow Trainer, JobSet),
        objects (servers for the objects of simulated accounts), bench (what ours is measured against); or single tools by
        name. Default: all but those.
    no_releases
        Do not ask publishers; build everything that is not on PATH.
    keep_cache
        Keep Go's caches, which are otherwise removed once everything is installed.
    """
    from isthmus.localcluster import images as unpacked
    from isthmus.localcluster import recipes
    from isthmus.toolchain import install as installer
    from isthmus.toolchain.progress import Progress, duration
    from isthmus.toolchain.rows import OPTIONAL

    if "images" in groups:
        groups = (*groups, "operators")  # whose programs go into images
    work = installer.plan(groups)
    if work.packages:
        print(f"Debian packages: {', '.join(f'{package.name} ({package.about})' for package in work.packages)}")
    if work.todo:
        names = ", ".join(f"{tool.name} {tool.version}" for tool in work.todo)
        print(f"to install: {names}\nat most {duration(work.seconds)} on 2 cores if all have to be built", flush=True)
    images = not groups or "images" in groups
    with Progress() as progress, ThreadPoolExecutor(1) as background:
        ways = installer.Ways(releases=not no_releases)
        if images:
            # The image without a program of ours takes minutes, mostly of the network: meanwhile the programs are built.
            installer.install(("images",), listener=progress, ways=ways, keep_cache=True)
            early = background.submit(recipes.build_all, progress.note, only=lambda recipe: not recipe.programs)
        outcomes = installer.install(groups, listener=progress, ways=ways, keep_cache=keep_cache)
        error = installer.failures(outcomes)
        if error is not None:
            raise error
        if images:
            early.result()
            recipes.build_all(progress.note)
        extra = OPTIONAL.intersection(groups)
        if extra:
            recipes.build_all(progress.note, only=lambda recipe: recipe.group in extra)
        if not groups or extra:
            progress.note("unpacking the images, once for every local cluster")
            unpacked.ensure_store()
    print(f"{len(outcomes)} ready; next: isthmus doctor")
