"""Every label, annotation and taint of our own, in one place. The prefix is isthmus.dev/."""

PREFIX = "isthmus.dev/"

MANAGED_BY = PREFIX + "managed-by"
"""On every object and cloud resource we create; the value is always OWNER. Nothing without it is touched."""

OWNER = "isthmus"

POOL = PREFIX + "pool"
"""Node label: the node pool's name."""

GPU_MODEL = PREFIX + "gpu-model"
"""Node label: the catalog's GPU model, for example T4. The one label workloads select cards by, on every cloud."""

GPU_SHARING = PREFIX + "gpu-sharing"
"""Node label of cards that pods claim (value `dra`): no device plugin runs there."""

EXECUTION = PREFIX + "execution"
"""Pod label: `simulated` lets a pod land on simulated nodes; absent means it runs for real."""

EXECUTION_SIMULATED = "simulated"

DURATION = PREFIX + "duration"
"""Pod annotation: how long a simulated pod takes, for example 90s."""

SIMULATED_TAINT = PREFIX + "simulated"
"""Taint key (NoSchedule) of simulated nodes."""

RUN = PREFIX + "run"
"""Label of every object of one run: the run's id."""

WORKLOAD = PREFIX + "workload"
"""Label of every object of a workload: the workload's name."""

GPU_RESOURCE = "nvidia.com/gpu"
"""The resource name that the NVIDIA device plugin advertises."""

GPU_TAINT = "nvidia.com/gpu"
"""Taint key of GPU nodes, value `present`, NoSchedule: what GKE sets by itself and we set everywhere (case A13)."""

RUNS_NAMESPACE = "isthmus-runs"
"""The namespace of sample workloads and runs, on every stack."""

RUNS_ACCOUNT = "trainer"
"""The service account that pods of runs use; the cloud identity with access to the bucket is bound to it."""

DEVICE_PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
"""Node label of shared cards: the name of the device plugin configuration to use (GpuSharing.config_name)."""

MIG_CONFIG = "nvidia.com/mig.config"
"""Node label: the layout that NVIDIA's MIG manager is to give the node's cards (GpuSharing.layout_name)."""

MIG_MANAGER = "nvidia.com/gpu.deploy.mig-manager"
"""Node label (value `true`): NVIDIA's MIG manager is to run there."""

MIG_STATE = "nvidia.com/mig.config.state"
"""Node label: how far it is: pending, rebooting, success or failed."""

MPS_CAPABLE = "nvidia.com/mps.capable"
"""Node label (value `true`): the MPS control daemon runs there."""

LOCAL_NODE = PREFIX + "local-node"
"""Label (value `true`) of the one node of a simulated cloud's cluster that runs containers."""

SIMULATED_NODE = PREFIX + "simulated-node"
"""Label (value `true`) of nodes that only schedule."""

GROWN = "karpenter.sh/nodepool"
"""Label of nodes that Karpenter made, with the name of its NodePool."""
