"""One valid example of every simulated GCP resource type, for test_simulated_resources.py."""

from typing import Any

from tests.conformance.world import Example, World

NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
ROUTER = "gcp:compute/router:Router"
CLUSTER = "gcp:container/cluster:Cluster"
ACCOUNT = "gcp:serviceaccount/account:Account"
BUCKET = "gcp:storage/bucket:Bucket"

PROJECT, REGION = "gcp-test", "us-central1"
LABELS = {"labels": {"team": "training"}}
CONFIGURATION = {"project": PROJECT, "region": REGION}


def _subnet(world: World) -> dict[str, Any]:
    return {
        "name": "subnet",
        "network": world.id(NETWORK),
        "region": REGION,
        "ipCidrRange": "10.0.0.0/20",
        "secondaryIpRanges": [
            {"rangeName": "pods", "ipCidrRange": "10.4.0.0/14"},
            {"rangeName": "services", "ipCidrRange": "10.8.0.0/20"},
        ],
    }


def _cluster(world: World) -> dict[str, Any]:
    return {
        "name": "train",
        "location": REGION,
        "nodeLocations": ["us-central1-a", "us-central1-b"],
        "network": world.id(NETWORK),
        "subnetwork": world.id(SUBNETWORK),
        "networkingMode": "VPC_NATIVE",
        "ipAllocationPolicy": {"clusterSecondaryRangeName": "pods", "servicesSecondaryRangeName": "services"},
        "workloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"},
        "removeDefaultNodePool": True,
        "initialNodeCount": 1,
        "deletionProtection": False,
    }


def _pool(world: World) -> dict[str, Any]:
    return {
        "name": "gpu",
        "cluster": world.id(CLUSTER),
        "location": REGION,
        "nodeLocations": ["us-central1-a"],
        "nodeCount": 2,
        "nodeConfig": {
            "machineType": "n1-standard-8",
            "serviceAccount": world.made(ACCOUNT)["email"],
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
            "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 4}],
        },
    }


def _member(world: World) -> str:
    return str(world.made(ACCOUNT)["member"])


def _nat(world: World) -> dict[str, Any]:
    return {
        "name": "nat",
        "router": world.made(ROUTER)["name"],
        "region": REGION,
        "natIpAllocateOption": "AUTO_ONLY",
        "sourceSubnetworkIpRangesToNat": "LIST_OF_SUBNETWORKS",
        "subnetworks": [{"name": world.id(SUBNETWORK), "sourceIpRangesToNats": ["ALL_IP_RANGES"]}],
    }


EXAMPLES: dict[str, Example] = {
    NETWORK: Example(
        lambda world: {"name": "net", "autoCreateSubnetworks": False},
        change={"routingMode": "GLOBAL"},
        replace={"name": "other"},
    ),
    SUBNETWORK: Example(_subnet, change={"privateIpGoogleAccess": True}, replace={"region": "us-west1"}),
    ROUTER: Example(
        lambda world: {"name": "router", "network": world.id(NETWORK), "region": REGION},
        change={"bgp": {"asn": 64514}},
        replace={"name": "other"},
    ),
    "gcp:compute/routerNat:RouterNat": Example(
        _nat, change={"logConfig": {"enable": True, "filter": "ERRORS_ONLY"}}, replace={"name": "other"}
    ),
    "gcp:compute/firewall:Firewall": Example(
        lambda world: {
            "name": "webhooks",
            "network": world.id(NETWORK),
            "sourceRanges": ["172.16.0.0/28"],
            "allows": [{"protocol": "tcp", "ports": ["9443"]}],
        },
        change={"description": "webhooks", "allows": [{"protocol": "tcp", "ports": ["8443", "9443"]}]},
        replace={"direction": "EGRESS"},
    ),
    CLUSTER: Example(
        _cluster, change={"resourceLabels": {"team": "training"}}, replace={"datapathProvider": "ADVANCED_DATAPATH"}
    ),
    "gcp:container/nodePool:NodePool": Example(_pool, change={"nodeCount": 3}, replace={"maxPodsPerNode": 32}),
    ACCOUNT: Example(
        lambda world: {"accountId": "trainer"}, change={"displayName": "Trainer"}, replace={"accountId": "another"}
    ),
    "gcp:serviceaccount/iAMMember:IAMMember": Example(
        lambda world: {
            "serviceAccountId": world.made(ACCOUNT)["name"],
            "role": "roles/iam.serviceAccountUser",
            "member": _member(world),
        },
        replace={"role": "roles/iam.serviceAccountTokenCreator"},
    ),
    "gcp:projects/iAMMember:IAMMember": Example(
        lambda world: {"project": PROJECT, "role": "roles/logging.logWriter", "member": _member(world)},
        replace={"role": "roles/monitoring.metricWriter"},
    ),
    BUCKET: Example(
        lambda world: {"name": "gcp-test-data", "location": "US-CENTRAL1", **LABELS},
        change={"versioning": {"enabled": True}},
        replace={"location": "EU"},
    ),
    "gcp:storage/bucketIAMMember:BucketIAMMember": Example(
        lambda world: {
            "bucket": world.made(BUCKET)["name"],
            "role": "roles/storage.objectUser",
            "member": _member(world),
        },
        replace={"role": "roles/storage.objectViewer"},
    ),
    "gcp:artifactregistry/repository:Repository": Example(
        lambda world: {"repositoryId": "images", "format": "DOCKER", "location": REGION, **LABELS},
        change={"description": "training images"},
        replace={"format": "MAVEN"},
    ),
}
