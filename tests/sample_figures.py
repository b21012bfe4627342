"""What every sample is expected to reach, wherever it runs, and one row of a table about it."""

import pytest

EXPECTED: dict[str, dict[str, tuple[float, float]]] = {
    "allreduce-digits": {"accuracy": (0.93, 1)},
    "census-income": {
        "train_accuracy": (0.9655 - 0.006, 0.9655 + 0.006),
        "accuracy": (0.8559 - 0.006, 0.8559 + 0.006),
        "anchor_precision": (0.95, 1),
    },
    "data-parallel": {"accuracy": (0.93, 1), "idle_share": (0, 0.2)},
    "ddp-digits": {"accuracy": (0.95, 1)},
    "ddp-elastic": {"accuracy": (0.95, 1), "workers": (2, 4)},
    "hpo-grid": {"accuracy": (0.95, 1), "best_trial": (0, 5)},
    "model-parallel": {"accuracy": (0.93, 1), "idle_share": (0.75 - 0.02, 0.75 + 0.02)},
    "pipeline-parallel": {"accuracy": (0.93, 1), "idle_share": (3 / 11 - 0.02, 3 / 11 + 0.06)},
    "ps-digits": {"accuracy": (0.93, 1)},
    "sendrecv": {"delivered": (1, 1)},
    "sklearn-iris": {"accuracy": (0.93, 1)},
    "small-inference": {"accuracy": (0.95, 1)},
    "tf-ps-digits": {"accuracy": (0.93, 1)},
    "tf-workers": {"accuracy": (0.93, 1)},
}
"""The last value of each metric lies between these."""


def row(capsys: pytest.CaptureFixture[str], place: str, name: str, seconds: float, latest: dict[str, float]) -> None:
    """One line of the table."""
    figures = ", ".join(
        f"{metric} {latest[metric]:.4g} (expected {low:.4g} to {high:.4g})"
        for metric, (low, high) in EXPECTED[name].items()
    )
    with capsys.disabled():
        print(f"\n{place:<9} {name:<18} {seconds:6.0f} s measured  {figures}", flush=True)


def expect(name: str, latest: dict[str, float]) -> None:
    """The metrics of a sample are what its README says."""
    for metric, (low, high) in EXPECTED[name].items():
        assert low <= latest[metric] <= high, f"{metric} is {latest[metric]}"
