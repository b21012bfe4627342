"""The bindings name what the clouds really make."""

import pytest

from workloads import bindings


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_the_storage_class_is_the_clouds_default_one(cloud: str) -> None:
    if cloud == "aws":
        from infra.aws import Aws as Cloud
    else:
        from infra.gcp import Gcp as Cloud  # type: ignore[assignment]
    first = Cloud.storage_classes(None)[0]  # type: ignore[arg-type]  # asks nothing of the instance
    assert first.default
    assert bindings.for_cloud(cloud).storage_class == first.name
    assert bindings.for_cloud(cloud).provides_device_plugin == Cloud.provides_device_plugin


def test_every_declared_difference_says_why() -> None:
    declared = bindings.declared(bindings.CLOUDS)
    assert all(rule.why and rule.path for rule in declared)
    assert set(bindings.declared(["aws"])) < set(declared), "what one cloud alone needs is not left out for others"
