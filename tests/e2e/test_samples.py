"""Every sample by `isthmus run --follow` on both runtimes, with the figures that its README promises. Long: `make test-all`,
or `pytest -m slow -k kind tests/e2e/test_samples.py`."""

import json
from collections.abc import Iterator

import pytest

from isthmus.specs import labels
from tests.e2e.conftest import Platform
from tests.sample_figures import expect, row
from workloads import render
from workloads.load import samples

pytestmark = [pytest.mark.local, pytest.mark.e2e, pytest.mark.slow]

OPERATORS = ["training-operator", "mpi-operator"]


@pytest.fixture(scope="module")
def trains(platform: Platform) -> Iterator[Platform]:
    """The platform with the operators of all samples, and afterwards as it was."""
    stacks = platform.stacks
    before = stacks.program
    stacks.settings(platform.stack, operators=OPERATORS)
    stacks.pulumi("up", "-s", platform.stack, "--yes", "--skip-preview")
    yield platform
    stacks.settings(platform.stack, operators=["training-operator"])
    stacks.pulumi("up", "-s", platform.stack, "--yes", "--skip-preview")
    stacks.program = before


@pytest.mark.parametrize("name", samples())
def test_a_sample_reaches_its_figures(trains: Platform, capsys: pytest.CaptureFixture[str], name: str) -> None:
    stacks = trains.stacks
    run = json.loads(stacks.isthmus("run", name, "-s", trains.stack, "--follow", "--json").stdout)
    try:
        assert (run["state"], run["source"], run["succeeded"]) == ("Succeeded", "measured", True)
        found = json.loads(stacks.isthmus("metrics", run["run"], "--json").stdout)
        latest = {item["metric"]: item["value"] for item in found}
        row(capsys, trains.name, name, run["seconds"], latest)
        expect(name, latest)
    finally:
        spec = render.load(name)
        trains.kube.delete(spec.form.api_version, spec.kind, run["job"], labels.RUNS_NAMESPACE)
