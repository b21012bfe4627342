"""The node image's parts: names that kubeadm and our own manifests ask for."""

import subprocess
from pathlib import Path

import pytest
import yaml

from isthmus.localcluster import images, recipes
from isthmus.localcluster.configs import storage
from isthmus.localcluster.kind import config, image, objects
from isthmus.specs.errors import NotFound
from isthmus.toolchain import home, table

NODE = image.RECIPES / image.BASE


def built() -> set[str]:
    return {recipe.image for recipe in recipes.required(image.RECIPES, store=image.STORE)}


def asked(file: str) -> set[str]:
    """The images that the objects of a manifest name."""
    found = set()
    for item in yaml.safe_load_all((NODE / file).read_text()):
        template = item.get("spec", {}).get("template", {})
        found |= {container["image"] for container in template.get("spec", {}).get("containers", [])}
    return found


def test_every_image_of_the_control_plane_is_built_under_kubeadm_s_name() -> None:
    try:
        kubeadm = home.tool("kubeadm")
    except NotFound as error:
        pytest.skip(error.message)
    version = (NODE / "version").read_text()
    command = [str(kubeadm), "config", "images", "list", "--kubernetes-version", version]
    wanted = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert set(wanted) <= built() | {images.PAUSE_IMAGE}


def test_the_node_is_of_the_version_that_is_installed() -> None:
    version = table.tool_named("kubernetes").version
    assert (NODE / "version").read_text() == f"v{version}"
    assert image.UPSTREAM.endswith(f":v{version}")
    for recipe in recipes.required(image.RECIPES, store=image.STORE):
        if recipe.name.startswith("kube-") or recipe.name == image.BASE:
            assert recipe.image.endswith(f":v{version}")


@pytest.mark.parametrize("file", ["default-cni.yaml", "default-storage.yaml"])
def test_what_kind_installs_names_images_that_are_inside(file: str) -> None:
    assert asked(file) and asked(file) <= built()


def test_programs_of_tools_go_in_under_the_tools_versions() -> None:
    for tool in ("flannel", "kwok", "local-path-provisioner"):
        (recipe,) = [found for found in recipes.required(image.RECIPES, store=image.STORE) if found.name == tool]
        assert recipe.image.rpartition(":")[2].removeprefix("v") == table.tool_named(tool).version


def test_the_pod_network_is_the_one_kind_is_asked_for() -> None:
    assert f'"Network": "{config.POD_SUBNET}"' in (NODE / "default-cni.yaml").read_text()


def test_storage_is_set_up_as_on_an_embedded_cluster() -> None:
    text = (NODE / "default-storage.yaml").read_text()
    assert images.HELPER_IMAGE in text
    for words in ('"setupCommand": "/bin/volume-setup"', '"teardownCommand": "/bin/volume-teardown"'):
        assert words in text and words in storage()


def test_kwok_s_image_is_inside() -> None:
    (deployment,) = [item for item in objects.manifests() if item["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] in built()


def test_no_image_has_the_tag_latest_and_none_is_pulled() -> None:
    """Case A25: such a tag makes a kubelet pull."""
    assert not [name for name in built() if name.endswith(":latest")]
    for file in ("default-cni.yaml", "default-storage.yaml"):
        text = (NODE / file).read_text()
        assert text.count("image: ") == text.count("imagePullPolicy: IfNotPresent")


def test_a_file_of_a_tool_goes_in_with_its_mode(tmp_path: Path) -> None:
    try:
        home.share("kind")
    except NotFound as error:
        pytest.skip(error.message)
    assert (home.share("kind") / "base" / "usr" / "local" / "bin" / "entrypoint").is_file()
