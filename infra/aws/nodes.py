"""Managed node groups: the system pool and GPU pools, on demand or spot.

The AMI is chosen by its type, so EKS keeps it current; the launch template carries what the node group itself cannot:
an encrypted disk, instance metadata that pods cannot reach, and tags on instances and disks (the provider's default
tags do not reach what an Auto Scaling group launches). There is no autoscaler here: `size` is what runs.
"""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from isthmus.specs import labels
from isthmus.specs.cluster import NodePool
from isthmus.specs.offer import Shape

AMI = "AL2023_x86_64_STANDARD"
GPU_AMI = "AL2023_x86_64_NVIDIA"
"""Brings the NVIDIA driver and container toolkit; the device plugin is deployed by operators/."""
DISK_GIB = 50
GPU_DISK_GIB = 100
"""Training images and unpacked layers run to tens of GiB."""
ROOT_DEVICE = "/dev/xvda"
"""Root device name of Amazon Linux 2023 AMIs."""
METADATA_HOPS = 1
"""Only the node itself reaches its instance role; pods have pod identity."""


@dataclass(frozen=True)
class PlacedPool:
    """A pool, the machine it was turned into, and the zones of the stack that offer it."""

    pool: NodePool
    machine: Shape
    zones: tuple[str, ...]


@dataclass(frozen=True)
class NodeGroupArgs:
    """What a node group needs to know."""

    cluster_name: pulumi.Input[str]
    placed: PlacedPool
    role_arn: pulumi.Input[str]
    subnet_ids: list[pulumi.Output[str]]
    security_group_ids: list[pulumi.Input[str]]
    tags: dict[str, str]
    """For instances and disks."""
    after: list[pulumi.Resource]
    """What must exist before the first node starts and until the last one is gone."""


class NodeGroup(pulumi.ComponentResource):
    """A managed node group with its launch template. Output: node_group_name."""

    def __init__(self, name: str, args: NodeGroupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:aws:NodeGroup", name, None, opts)
        pool, machine = args.placed.pool, args.placed.machine
        child = pulumi.ResourceOptions(parent=self)
        template = _launch_template(name, args, child)
        group = aws.eks.NodeGroup(
            name,
            cluster_name=args.cluster_name,
            node_group_name=pool.name,
            node_role_arn=args.role_arn,
            subnet_ids=args.subnet_ids,
            ami_type=GPU_AMI if machine.gpu_count else AMI,
            capacity_type="SPOT" if pool.spot else "ON_DEMAND",
            instance_types=[machine.instance_type],
            scaling_config={"min_size": pool.min, "desired_size": pool.size, "max_size": pool.max},
            update_config={"max_unavailable": 1},
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            labels=node_labels(pool, machine),
            taints=[_gpu_taint()] if machine.gpu_count else [],
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.after),
        )
        self.node_group_name: pulumi.Output[str] = group.node_group_name
        self.register_outputs({"nodeGroupName": self.node_group_name})


def node_labels(pool: NodePool, machine: Shape) -> dict[str, str]:
    """Our own labels of a pool's nodes, on top of those that EKS sets. Shared cards say what the operators are to do with
    them; on GKE, whose plugin is its own, sharing is a setting of the pool instead."""
    ours = {labels.POOL: pool.name}
    if machine.gpu_model:
        ours[labels.GPU_MODEL] = machine.gpu_model
        ours |= pool.sharing.node_labels
    return ours


def _gpu_taint() -> aws.eks.NodeGroupTaintArgsDict:
    return {"key": labels.GPU_TAINT, "value": "present", "effect": "NO_SCHEDULE"}


def _launch_template(name: str, args: NodeGroupArgs, opts: pulumi.ResourceOptions) -> aws.ec2.LaunchTemplate:
    tags = {**args.tags, "Name": name, labels.POOL: args.placed.pool.name}
    return aws.ec2.LaunchTemplate(
        name,
        name_prefix=f"{name}-",
        update_default_version=True,
        vpc_security_group_ids=args.security_group_ids,
        metadata_options={
            "http_endpoint": "enabled",
            "http_tokens": "required",
            "http_put_response_hop_limit": METADATA_HOPS,
        },
        block_device_mappings=[
            {
                "device_name": ROOT_DEVICE,
                "ebs": {
                    "volume_type": "gp3",
                    "volume_size": GPU_DISK_GIB if args.placed.machine.gpu_count else DISK_GIB,
                    "encrypted": "true",
                    "delete_on_termination": "true",
                },
            }
        ],
        tag_specifications=[{"resource_type": kind, "tags": tags} for kind in ("instance", "volume")],
        tags=tags,
        opts=opts,
    )
