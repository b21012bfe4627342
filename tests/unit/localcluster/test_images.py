"""Image archives and the copy of the store that a cluster gets."""

import json
import os
import tarfile
from pathlib import Path

import pytest

from isthmus.localcluster import images
from isthmus.specs.errors import NotFound


def test_archive_names_its_image_and_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        images.write_archive(tmp_path / name, "example.test/x:1", {"bin/x": b"program"}, {"Entrypoint": ["/bin/x"]})
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as archive:
        index = json.load(archive.extractfile("index.json"))  # type: ignore[arg-type]
        entry = index["manifests"][0]
        assert entry["annotations"]["io.containerd.image.name"] == "example.test/x:1"
        manifest = json.load(archive.extractfile(f"blobs/sha256/{entry['digest'][7:]}"))  # type: ignore[arg-type]
        config = json.load(archive.extractfile(f"blobs/sha256/{manifest['config']['digest'][7:]}"))  # type: ignore[arg-type]
    assert config["config"] == {"Entrypoint": ["/bin/x"]} and len(config["rootfs"]["diff_ids"]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "b.tar"]


def test_clone_links_layers_and_copies_what_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    root = images.store() / "root"
    layer = root / images.SHARED_PARTS[1] / "1" / "fs" / "state.db"  # a file of an image may be called anything
    database = root / "io.containerd.metadata.v1.bolt" / "meta.db"
    for path in (layer, database):
        path.parent.mkdir(parents=True)
        path.write_text("content")
    target = tmp_path / "clone"
    images.clone(target)
    assert os.path.samefile(target / layer.relative_to(root), layer)
    assert not os.path.samefile(target / database.relative_to(root), database)
    assert (target / database.relative_to(root)).read_text() == "content"


def test_clone_after_a_crash_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    (images.store() / "root").mkdir(parents=True)
    (tmp_path / "clone.half").mkdir()
    (tmp_path / "clone.half" / "junk").touch()
    images.clone(tmp_path / "clone")
    assert list((tmp_path / "clone").iterdir()) == [] and not (tmp_path / "clone.half").exists()


def test_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nothing\.tar"):
        images.import_archive(tmp_path / "nothing.tar", ["ctr"], log=tmp_path / "log")
