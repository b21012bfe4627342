"""A simulated AWS account for tests: its operations over a file, and a cluster with its network in a few lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isthmus.simulation import local
from isthmus.simulation.account import Account, Row
from isthmus.simulation.aws.cloud import CLOUD
from isthmus.simulation.operations import Operations
from isthmus.toolchain.values import Properties
from tests.local_backend import FileBackend, FileCluster

NAME, REGION = "aws-test", "us-east-1"
VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
ROLE = "aws:iam/role:Role"
CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
ENTRY = "aws:eks/accessEntry:AccessEntry"
ASSOCIATION = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"


def trust(service: str) -> str:
    """A trust policy for an AWS service."""
    return json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}],
        }
    )


class Aws:
    """One account, and the engine's view of it."""

    def __init__(self, folder: Path, name: str = NAME) -> None:
        self.backend = FileBackend(folder / "clusters")
        local.use(self.backend)  # type: ignore[arg-type]
        self.account = Account(name, folder / f"{name}.db")
        self.restart()

    def restart(self, region: str = REGION) -> None:
        """A new provider process, which has seen no URN."""
        config = CLOUD.configure({"profile": self.account.name, "region": region}, self.account.name)
        self.operations = Operations(CLOUD, self.account, config)

    def urn(self, token: str, name: str) -> str:
        return f"urn:pulumi:dev::test::{token}::{name}"

    def check(self, token: str, name: str, inputs: Properties, olds: Properties | None = None) -> Properties:
        found, failures = self.operations.check(token, self.urn(token, name), inputs, olds or {}, "seed")
        assert failures == []
        return found

    def make(self, token: str, name: str, /, **inputs: Any) -> Row:
        """Check and create, as the engine does."""
        checked = self.check(token, name, inputs)
        identity, _ = self.operations.create(token, self.urn(token, name), checked)
        return next(row for row in self.account.rows(token, urn=self.urn(token, name)) if row.id == identity)

    def get(self, token: str, identity: str) -> Row:
        row = next((row for row in self.account.rows(token) if row.id == identity), None)
        assert row is not None
        return row

    def update(self, row: Row, **change: Any) -> Properties:
        """An update in place."""
        return self.operations.update(row.type, row.id, row.urn, row.outputs, {**row.inputs, **change})

    def delete(self, row: Row) -> None:
        self.operations.delete(row.type, row.id, row.urn, row.outputs)

    def network(self, letters: str = "ab") -> list[str]:
        """Ids of a subnet in each zone of a VPC."""
        vpc = self.make(VPC, "net", cidrBlock="10.0.0.0/16").id
        return [
            self.make(
                SUBNET, f"s-{zone}", vpcId=vpc, cidrBlock=f"10.0.{index}.0/24", availabilityZone=f"{REGION}{zone}"
            ).id
            for index, zone in enumerate(letters)
        ]

    def cluster(self, letters: str = "ab", **more: Any) -> Row:
        """A control plane; node groups of `pool` belong to it."""
        self.subnets = self.network(letters)
        self.make(ROLE, "nodes", name="nodes", assumeRolePolicy=trust("ec2.amazonaws.com"))
        role = self.make(ROLE, "plane", name="plane", assumeRolePolicy=trust("eks.amazonaws.com"))
        given = {"name": "training", "roleArn": role.outputs["arn"], "vpcConfig": {"subnetIds": self.subnets}, **more}
        return self.make(CLUSTER, "training", **given)

    def pool(self, name: str, machine: str, size: int, /, cluster: str = "training", **more: Any) -> Row:
        """A node group of the cluster."""
        return self.make(NODE_GROUP, name, **self.pool_inputs(name, machine, size, cluster), **more)

    def pool_inputs(self, name: str, machine: str, size: int, cluster: str = "training") -> Properties:
        ami = "AL2023_x86_64_NVIDIA" if machine[0] in "gp" else "AL2023_x86_64_STANDARD"
        return {
            "clusterName": cluster,
            "nodeGroupName": name,
            "nodeRoleArn": self.get(ROLE, "nodes").outputs["arn"],
            "subnetIds": self.subnets,
            "instanceTypes": [machine],
            "amiType": ami,
            "scalingConfig": {"minSize": 0, "desiredSize": size, "maxSize": max(size, 1)},
        }

    def local_cluster(self) -> FileCluster:
        """The one local cluster there is."""
        (found,) = self.backend.list()
        return found
