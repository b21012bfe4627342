"""The ways to share cards that simulated and local nodes are compared in: every mode, every card, many MIG layouts."""

from isthmus import catalog
from isthmus.catalog import sharing as rules
from isthmus.specs.sharing import GpuSharing

Layout = tuple[str, int, GpuSharing]
"""Card model, cards of the node, how they are shared."""

MIXED = {
    "A30": [{"2g.12gb": 1, "1g.6gb": 2}],
    "A100": [
        {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2},
        {"4g.20gb": 1, "3g.20gb": 1},
        {"4g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1},
        {"2g.10gb": 3, "1g.5gb": 1},
        {"3g.20gb": 1, "1g.10gb": 2},
        {"1g.5gb": 6, "1g.5gb+me": 1},
        {"3g.20gb": 1},
    ],
    "A100-80GB": [{"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}, {"1g.20gb": 3, "1g.10gb": 1}],
    "H100": [{"3g.40gb": 1, "2g.20gb": 1, "1g.20gb": 1}, {"4g.40gb": 1, "1g.10gb": 3}],
    "H200": [{"3g.71gb": 1, "2g.35gb": 1, "1g.18gb": 2}],
}


def layouts() -> list[Layout]:
    """Every case, those under MPS last and together: the first of them takes the device plugin 30 s."""
    facts = catalog.load()
    found: list[Layout] = []
    for gpu in facts.gpus():
        found += [
            (gpu.model, 2, GpuSharing()),
            (gpu.model, 4, GpuSharing(mode="time-slicing", replicas=4)),
            (gpu.model, 1, GpuSharing(mode="time-slicing", replicas=10, rename=True, fail_greater_than_one=False)),
        ]
        for profile in facts.mig_profiles(gpu.model):
            full = {profile.profile: profile.max_instances}
            found.append((gpu.model, 2, GpuSharing(mode="mig", layout=full, strategy="single")))
    for model, some in MIXED.items():
        found += [(model, 2, GpuSharing(mode="mig", layout=layout)) for layout in some]
        found.append((model, 1, GpuSharing(mode="mig", layout=some[0], replicas=3)))
        found.append((model, 1, GpuSharing(mode="mig", layout=some[0], replicas=2, rename=True)))
    media = {"1g.5gb": 6, "1g.5gb+me": 1}
    found.append(("A100", 1, GpuSharing(mode="mig", layout=media, replicas=2)))
    found.append(("A100", 8, GpuSharing(mode="mig", layout={"1g.5gb": 7}, strategy="single", replicas=3)))
    for gpu in facts.gpus():
        found.append((gpu.model, 2, GpuSharing(mode="mps", clients=rules.most_clients(facts, gpu))))
    return [*found, ("T4", 8, GpuSharing(mode="mps", clients=10))]


def name(layout: Layout) -> str:
    """A name for a case, and for its node."""
    model, count, sharing = layout
    words = sharing.config_name or "whole"
    return f"{count}x{model}-{words}".lower().replace("_", "-").replace(".", "-")
