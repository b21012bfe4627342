"""The properties of GKE clusters and node pools that are understood. Data only; any other is refused by its name."""

from isthmus.simulation.gcp.base import PROJECT, SELF_LINK
from isthmus.simulation.resource import Property

ENABLED = (Property("enabled", "bool", required=True),)
TAINT = (
    Property("key", required=True),
    Property("value", required=True),
    Property("effect", required=True, choices=("NO_SCHEDULE", "PREFER_NO_SCHEDULE", "NO_EXECUTE")),
)
ACCELERATOR = (
    Property("type", required=True),
    Property("count", "int", required=True),
    Property("gpuPartitionSize"),
    Property(
        "gpuDriverInstallationConfig",
        "object",
        fields=(
            Property(
                "gpuDriverVersion",
                required=True,
                choices=("GPU_DRIVER_VERSION_UNSPECIFIED", "INSTALLATION_DISABLED", "DEFAULT", "LATEST"),
            ),
        ),
    ),
    Property(
        "gpuSharingConfig",
        "object",
        fields=(
            Property("gpuSharingStrategy", required=True, choices=("TIME_SHARING", "MPS")),
            Property("maxSharedClientsPerGpu", "int", required=True),
        ),
    ),
)
NODE_CONFIG = (
    Property("machineType"),
    Property("imageType"),
    Property("diskType"),
    Property("diskSizeGb", "int"),
    Property("spot", "bool", default=False, replaces=True),
    Property("preemptible", "bool", default=False, replaces=True),
    Property("serviceAccount", replaces=True),
    Property("oauthScopes", "list", replaces=True, unordered=True),
    Property("workloadMetadataConfig", "object", fields=(Property("mode", required=True),)),
    Property(
        "shieldedInstanceConfig",
        "object",
        replaces=True,
        fields=(
            Property("enableSecureBoot", "bool", default=False),
            Property("enableIntegrityMonitoring", "bool", default=True),
        ),
    ),
    Property("metadata", "map", replaces=True),
    Property("labels", "map"),
    Property("resourceLabels", "map"),
    Property("tags", "list"),
    Property("taints", "objects", fields=TAINT),
    Property("guestAccelerators", "objects", replaces=True, fields=ACCELERATOR),
)
"""Fields of a node's settings; those that the real provider replaces the pool for are marked."""

CLUSTER_PROPERTIES = (
    Property("name", replaces=True, filled=True),
    Property("location", filled=True, replaces=True),
    Property("nodeLocations", "list", filled=True, unordered=True),
    Property("description", replaces=True),
    Property("network", replaces=True),
    Property("subnetwork", replaces=True),
    Property("networkingMode", filled=True, replaces=True, choices=("VPC_NATIVE", "ROUTES")),
    Property("datapathProvider", filled=True, replaces=True, choices=("ADVANCED_DATAPATH", "LEGACY_DATAPATH")),
    Property(
        "ipAllocationPolicy",
        "object",
        replaces=True,
        fields=(
            Property("clusterSecondaryRangeName"),
            Property("servicesSecondaryRangeName"),
            Property("clusterIpv4CidrBlock"),
            Property("servicesIpv4CidrBlock"),
        ),
    ),
    Property(
        "privateClusterConfig",
        "object",
        fields=(
            Property("enablePrivateNodes", "bool", replaces=True),
            Property("enablePrivateEndpoint", "bool"),
            Property("masterIpv4CidrBlock", replaces=True),
        ),
    ),
    Property("workloadIdentityConfig", "object", fields=(Property("workloadPool"),)),
    Property(
        "releaseChannel",
        "object",
        fields=(Property("channel", required=True, choices=("UNSPECIFIED", "RAPID", "REGULAR", "STABLE", "EXTENDED")),),
    ),
    Property("minMasterVersion"),
    Property("loggingConfig", "object", fields=(Property("enableComponents", "list", required=True, unordered=True),)),
    Property(
        "addonsConfig",
        "object",
        fields=(
            Property("gcePersistentDiskCsiDriverConfig", "object", fields=ENABLED),
            Property("gcpFilestoreCsiDriverConfig", "object", fields=ENABLED),
            Property("gcsFuseCsiDriverConfig", "object", fields=ENABLED),
        ),
    ),
    Property("removeDefaultNodePool", "bool", default=False),
    Property("initialNodeCount", "int", replaces=True),
    Property("nodeConfig", "object", replaces=True, fields=NODE_CONFIG),
    Property("deletionProtection", "bool", default=True),
    Property("resourceLabels", "map"),
    Property("pulumiLabels", "map", computed=True, volatile=True),
    Property("effectiveLabels", "map", computed=True, volatile=True),
    PROJECT,
    SELF_LINK,
    Property("endpoint", computed=True),
    Property("masterAuth", "object", computed=True),
    Property("masterVersion", computed=True, volatile=True),
    Property("nodeVersion", filled=True),
    Property("servicesIpv4Cidr", computed=True),
    Property("clusterIpv4Cidr", filled=True, replaces=True),
)

POOL_PROPERTIES = (
    Property("name", replaces=True, filled=True),
    Property("cluster", required=True, replaces=True),
    Property("location", filled=True, replaces=True),
    Property("nodeLocations", "list", filled=True, unordered=True),
    Property("nodeCount", "int", filled=True),
    Property("initialNodeCount", "int", filled=True, replaces=True),
    Property("maxPodsPerNode", "int", filled=True, replaces=True),
    Property("version", filled=True),
    Property(
        "autoscaling",
        "object",
        fields=(
            Property("minNodeCount", "int"),
            Property("maxNodeCount", "int"),
            Property("totalMinNodeCount", "int"),
            Property("totalMaxNodeCount", "int"),
            Property("locationPolicy", choices=("BALANCED", "ANY")),
        ),
    ),
    Property("management", "object", fields=(Property("autoRepair", "bool"), Property("autoUpgrade", "bool"))),
    Property(
        "upgradeSettings",
        "object",
        fields=(Property("maxSurge", "int"), Property("maxUnavailable", "int"), Property("strategy")),
    ),
    Property("nodeConfig", "object", fields=NODE_CONFIG),
    PROJECT,
    Property("instanceGroupUrls", "list", computed=True),
    Property("managedInstanceGroupUrls", "list", computed=True),
)
