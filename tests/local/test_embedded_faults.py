"""What an embedded cluster survives, and what it leaves behind: kill -9 of one process, of all, of the one who creates;
stop and start; deletion; two clusters side by side; two commands at once."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isthmus.kube import Cluster, wait
from isthmus.localcluster import network
from isthmus.localcluster.cgroups import Tree, hierarchies
from isthmus.localcluster.embedded import EmbeddedCluster, EmbeddedRuntime
from isthmus.localcluster.runtime import LocalClusterConfig, LocalNode
from isthmus.localcluster.state import ClusterState, new_state, read, read_json, write
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec, NotFound, Refused
from isthmus.toolchain import home
from tests.clusters import Probes, borrow_home

pytestmark = pytest.mark.local

CREATE = """
import sys
from isthmus.localcluster.embedded import EmbeddedRuntime
from isthmus.localcluster.runtime import LocalClusterConfig, LocalNode
EmbeddedRuntime().create(sys.argv[1], LocalClusterConfig())
"""


def create(name: str, **options: object) -> EmbeddedCluster:
    return EmbeddedRuntime().create(name, LocalClusterConfig(nodes=(LocalNode(**options),)))  # type: ignore[arg-type]


def pid_of(cluster: EmbeddedCluster, component: str) -> int:
    return next(item.pid for item in cluster.status().processes if item.name == component and item.pid)


def supervisor_pid(cluster: EmbeddedCluster) -> int:
    return int(read_json(cluster.paths.status)["pid"])


def keep(cluster: EmbeddedCluster, word: str) -> None:
    """Write an object to look for later."""
    mark = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mark", "namespace": "default"},
        "data": {"word": word},
    }
    Cluster(cluster.kubeconfig()).apply(mark)


def kept(cluster: EmbeddedCluster) -> str:
    return str(Cluster(cluster.kubeconfig()).get("v1", "ConfigMap", "mark", "default")["data"]["word"])


@pytest.fixture
def cluster(fresh_home: Path) -> EmbeddedCluster:
    return create("faulty")


def whole_machine() -> dict[str, list[str]]:
    """Everything on the machine that clusters could leave behind."""
    folders = ["/var/lib", "/run", "/run/netns", "/var/log", "/etc", "/opt", "/usr/libexec", "/usr/lib"]
    settings = ["net/ipv4/ip_forward", "fs/inotify/max_user_instances", "vm/overcommit_memory", "kernel/panic"]
    return {
        "mounts": sorted(line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "links": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "tables": network.run("nft", "list", "tables").splitlines(),
        "cgroups": sorted(str(path) for where, _ in hierarchies() for path in where.glob("isthmus-*")),
        "settings": [Path("/proc/sys", name).read_text() for name in settings],
        "folders": sorted(str(path) for folder in folders if Path(folder).is_dir() for path in Path(folder).iterdir()),
    }


def traces(state: ClusterState, folder: Path) -> list[str]:
    """What of one cluster can be found anywhere."""
    marks = (state.identity, str(folder))
    looked = [text for kind in whole_machine().values() for text in kind if any(mark in text for mark in marks)]
    return looked + [f"process {pid}" for pid in Tree(state.space).processes()]


def test_delete_leaves_nothing(fresh_home: Path, probe_archive: Path) -> None:
    alone = not any(Path("/sys/class/net").glob("isth*"))
    before = whole_machine()
    cluster = create("gone")
    cluster.load_image(probe_archive)
    volume = {"volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory"}}]}
    Probes(cluster).stay("sleeper", "write", "/s/x", "here", mounts=[{"name": "scratch", "mountPath": "/s"}], **volume)
    state = read(cluster.paths)
    assert state is not None
    pids = Tree(state.space).processes()
    assert len(pids) > 12 and len(traces(state, cluster.paths.folder)) > 12
    cluster.delete()
    assert traces(state, cluster.paths.folder) == []
    assert not [pid for pid in pids if str(fresh_home) in _command(pid)]
    assert list((fresh_home / "clusters").iterdir()) == []
    if alone and not any(Path("/sys/class/net").glob("isth*")):  # else what clusters share rightly stays
        assert whole_machine() == before
    cluster.delete()  # once more is no error
    with pytest.raises(NotFound):
        EmbeddedRuntime().get("gone")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_delete_cut_short_is_finished_by_delete_or_create(cluster: EmbeddedCluster) -> None:
    keep(cluster, "old")
    state = read(cluster.paths)
    assert state is not None
    state.wanted = "deleted"  # what delete does first; then it was killed, with some folders gone
    write(cluster.paths, state)
    Tree(state.space).end()
    shutil.rmtree(cluster.paths.etcd)
    with pytest.raises(Refused, match="half deleted"):
        cluster.start()
    again = create(cluster.name)
    with pytest.raises(NotFound):
        kept(again)
    again.delete()
    assert traces(state, cluster.paths.folder) == []


@pytest.mark.parametrize(
    "component", ["etcd", "containerd", "kube-apiserver", "kubelet", "kube-scheduler", "coredns", "kwok"]
)
def test_killed_process_is_restarted_and_status_says_so(embedded_cluster: EmbeddedCluster, component: str) -> None:
    killed = pid_of(embedded_cluster, component)
    before = next(item.restarts for item in embedded_cluster.status().processes if item.name == component)
    os.kill(killed, signal.SIGKILL)

    def again() -> bool:
        item = next(item for item in embedded_cluster.status().processes if item.name == component)
        return item.ready and item.pid != killed and item.restarts == before + 1 and item.last_exit == -signal.SIGKILL

    wait.until(again, seconds=60, what=f"{component} to run again")
    wait.until(lambda: embedded_cluster.status().phase == "running", seconds=60, what="the cluster to run")


def test_supervisor_killed_containers_go_on_and_start_takes_over(cluster: EmbeddedCluster, probe_archive: Path) -> None:
    cluster.load_image(probe_archive)
    probes = Probes(cluster)
    probes.stay("trainer", "say", "epoch 1")
    keep(cluster, "kept")
    container = probes.kube.get("v1", "Pod", "trainer", "default")["status"]["containerStatuses"][0]["containerID"]
    os.kill(supervisor_pid(cluster), signal.SIGKILL)
    wait.until(lambda: cluster.status().phase == "dead", seconds=10, what="the status to say so")
    cluster.start()
    assert cluster.status().phase == "running" and kept(cluster) == "kept"
    status = probes.kube.get("v1", "Pod", "trainer", "default")["status"]
    assert status["phase"] == "Running" and status["containerStatuses"][0]["containerID"] == container
    assert status["containerStatuses"][0]["restartCount"] == 0 and probes.log("trainer") == "epoch 1"
    assert probes.run("after", "say", "still") == "still"


def test_a_container_that_a_killed_runc_left_frozen_goes_on_or_ends(
    cluster: EmbeddedCluster, probe_archive: Path
) -> None:
    """With cgroups version 1 a frozen process cannot even be killed."""
    cluster.load_image(probe_archive)
    Probes(cluster).stay("trainer", "say", "epoch 1")
    state = read(cluster.paths)
    assert state is not None
    switches = [path for root in Tree(state.space).roots for path in (root / "kubepods").rglob("freezer.state")]
    held = [path for path in switches if (path.parent / "cgroup.procs").read_text()]
    if not held:
        pytest.skip("no freezer of cgroups version 1 here")
    for path in held:
        path.write_text("FROZEN")
    os.kill(supervisor_pid(cluster), signal.SIGKILL)
    wait.until(lambda: cluster.status().phase == "dead", seconds=10, what="the status to say so")
    cluster.start()
    assert {path.read_text().strip() for path in held} == {"THAWED"}
    for path in held:
        path.write_text("FROZEN")
    cluster.delete()
    assert not Tree(state.space).exists()


def test_everything_killed_start_goes_on_with_all_state(cluster: EmbeddedCluster, probe_archive: Path) -> None:
    cluster.load_image(probe_archive)
    keep(cluster, "kept")
    state = read(cluster.paths)
    assert state is not None
    Tree(state.space).end()  # SIGKILL to every process and container
    assert cluster.status().phase == "dead"
    cluster.start()
    assert kept(cluster) == "kept"
    assert Probes(cluster).run("after", "say", "still") == "still"


def test_namespaces_gone_as_after_a_reboot(cluster: EmbeddedCluster, probe_archive: Path) -> None:
    cluster.load_image(probe_archive)
    keep(cluster, "kept")
    endpoint = cluster.endpoint
    state = read(cluster.paths)
    assert state is not None
    tree = Tree(state.space)
    tree.end()
    tree.remove()
    network.remove(state)
    (network.NETNS / state.space).parent.mkdir(exist_ok=True)
    (network.NETNS / state.space).touch()  # an empty file is what stays where /run is a disk
    cluster.start()
    assert cluster.endpoint == endpoint and kept(cluster) == "kept"
    assert Probes(cluster).run("after", "resolve", "kubernetes.default") == "10.96.0.1"


def test_stop_and_start_keep_objects_and_volumes(cluster: EmbeddedCluster) -> None:
    keep(cluster, "kept")
    state = read(cluster.paths)
    assert state is not None
    (cluster.paths.volumes / "file").write_text("kept")
    cluster.stop()
    assert cluster.status().phase == "stopped" and not Tree(state.space).processes()
    cluster.stop()  # once more is no error
    cluster.start()
    assert kept(cluster) == "kept" and (cluster.paths.volumes / "file").read_text() == "kept"
    cluster.start()


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "seconds", [pytest.param(0.3, marks=SLOW), 1.0, 2.5, pytest.param(4.0, marks=SLOW), pytest.param(6.0, marks=SLOW)]
)
def test_create_killed_in_the_middle_is_resumed_by_create(fresh_home: Path, seconds: float) -> None:
    _create_and_kill("half", seconds)
    cluster = create("half")
    assert cluster.status().phase == "running"


@pytest.mark.parametrize("seconds", [pytest.param(0.6, marks=SLOW), 2.0, pytest.param(4.0, marks=SLOW)])
def test_create_killed_in_the_middle_is_removed_by_delete(fresh_home: Path, seconds: float) -> None:
    _create_and_kill("half", seconds)
    cluster = EmbeddedCluster("half")
    cluster.delete()
    assert not cluster.paths.folder.exists() and list((fresh_home / "clusters").iterdir()) == []
    assert traces(new_state(fresh_home, "half"), cluster.paths.folder) == []


def _create_and_kill(name: str, seconds: float) -> None:
    process = subprocess.Popen([sys.executable, "-c", CREATE, name], start_new_session=True)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_supervisor_survives_the_death_of_its_creators_session(fresh_home: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", CREATE, "orphan"], start_new_session=True)
    wait.until(lambda: (fresh_home / "clusters/orphan/status.json").exists(), seconds=60, what="the supervisor")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    cluster = EmbeddedRuntime().get("orphan")
    wait.until(lambda: all(item.ready for item in cluster.status().processes), seconds=60, what="all processes")
    assert cluster.status().phase == "creating"  # nobody has seen it usable yet


def test_two_clusters_side_by_side(fresh_home: Path) -> None:
    first, second = create("first"), create("second")
    assert first.endpoint != second.endpoint
    keep(first, "one")
    keep(second, "two")
    assert (kept(first), kept(second)) == ("one", "two")
    first.delete()
    assert kept(second) == "two" and second.status().phase == "running"


def test_two_homes_with_a_cluster_of_the_same_name(
    fresh_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = create("same")
    keep(first, "one")
    other = borrow_home(tmp_path / "other", images=False)
    monkeypatch.setenv(home.HOME_VARIABLE, str(other))
    second = create("same")
    try:
        keep(second, "two")
        assert (kept(first), kept(second)) == ("one", "two")
    finally:
        second.delete()
    assert kept(first) == "one"


def test_second_command_waits_and_then_says_who_holds_the_cluster(
    embedded_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.localcluster.embedded.LOCK_SECONDS", 0.3)
    with embedded_cluster._lock("create"), pytest.raises(Refused, match=f"process {os.getpid()}: create"):
        embedded_cluster.stop()
    assert embedded_cluster.status().phase == "running"


def test_create_again_changes_labels_of_the_running_node(embedded_cluster: EmbeddedCluster) -> None:
    pid = supervisor_pid(embedded_cluster)
    again = create(embedded_cluster.name, labels={"isthmus.dev/pool": "system"})
    node = Cluster(again.kubeconfig()).get("v1", "Node", again.local_node())
    assert node["metadata"]["labels"]["isthmus.dev/pool"] == "system" and supervisor_pid(again) == pid
    create(embedded_cluster.name, labels={"other": "label"})
    labels = Cluster(again.kubeconfig()).get("v1", "Node", again.local_node())["metadata"]["labels"]
    assert labels["other"] == "label" and "isthmus.dev/pool" not in labels and labels["kubernetes.io/os"] == "linux"


def test_bad_names_and_versions_change_nothing(fresh_home: Path) -> None:
    for name in ("Upper", "-a", "a" * 41, "a/b", ""):
        with pytest.raises(InvalidSpec):
            create(name)
    with pytest.raises(InvalidSpec, match=r"1\.29"):
        EmbeddedRuntime().create("old", LocalClusterConfig(kubernetes_version="1.29"))
    assert not (fresh_home / "clusters").exists() or list((fresh_home / "clusters").iterdir()) == []


def test_images_made_after_the_cluster_are_loaded_by_the_next_create(fresh_home: Path, probe_archive: Path) -> None:
    cluster = create("later")
    shutil.copy(probe_archive, fresh_home / "images" / "probe.tar")
    create("later")
    assert Probes(cluster).run("says", "say", "found") == "found"


def test_full_disk_for_the_status_file_ends_nothing(cluster: EmbeddedCluster) -> None:
    """The supervisor cannot write: as on a full disk. It goes on, restarts what ends, and writes when it can again."""
    cluster.paths.status.unlink()
    cluster.paths.status.mkdir()  # nothing can replace a folder by a file
    state = read(cluster.paths)
    assert state is not None
    tree = Tree(state.space)
    (killed,) = tree.processes("system/coredns")
    os.kill(killed, signal.SIGKILL)
    wait.until(lambda: tree.processes("system/coredns") - {killed}, seconds=30, what="coredns to run again")
    cluster.paths.status.rmdir()
    wait.until(lambda: cluster.status().phase == "running", seconds=30, what="the status to be written")


@pytest.mark.slow
def test_process_that_hangs_is_shown_as_not_ready(embedded_cluster: EmbeddedCluster) -> None:
    pid = pid_of(embedded_cluster, "coredns")
    os.kill(pid, signal.SIGSTOP)
    try:
        wait.until(lambda: embedded_cluster.status().phase != "running", seconds=40, what="the status to say so")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait.until(lambda: embedded_cluster.status().phase == "running", seconds=40, what="coredns to answer again")
    assert pid_of(embedded_cluster, "coredns") == pid


def test_cards_appear_where_they_are_asked_for(cluster: EmbeddedCluster, probe_archive: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    cluster.load_image(probe_archive)
    probes = Probes(cluster)
    assert probes.run("before", "libraries", environment={"NVIDIA_VISIBLE_DEVICES": "all"}) == "none"
    cluster.set_cards(GpuCards(model="T4", count=4))
    assert probes.run("asks", "libraries", environment={"NVIDIA_VISIBLE_DEVICES": "all"}) == "driver"
    assert probes.run("refuses", "libraries", environment={"NVIDIA_VISIBLE_DEVICES": "void"}) == "none"
    assert probes.run("does-not-ask", "libraries") == "none"
    text = probes.run("reads", "read", "/run/isthmus/driver/cards", environment={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert text.count("GPU-") == 4


def test_set_cards_replaces_the_device_plugins_pod(cluster: EmbeddedCluster, probe_archive: Path) -> None:
    cluster.load_image(probe_archive)
    probes = Probes(cluster)
    mounts = [{"name": "plugins", "mountPath": "/plugins"}]
    volumes = [{"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]
    probes.stay("plugin", "say", "up", mounts=mounts, volumes=volumes)
    probes.stay("other", "say", "up")
    cluster.set_cards(GpuCards(model="T4", count=1))
    wait.gone(probes.kube, "v1", "Pod", "plugin", "default", seconds=30)
    assert probes.phase("other") == "Running"
