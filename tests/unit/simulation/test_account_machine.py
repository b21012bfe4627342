"""A simulated account under any order of operations, kills and restarts (hypothesis).

The model is what a cloud must keep: names are given once, nothing in use is deleted, quotas are never passed, an
intent is continued by its own URN only, and the local clusters are those of the account's control planes.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from isthmus.simulation import local, quota
from isthmus.simulation.account import CREATING, READY, Row
from isthmus.simulation.aws.cloud import CLOUD
from isthmus.simulation.resource import CloudError
from tests.unit.simulation.aws_account import CLUSTER, NODE_GROUP, VPC, Aws

MACHINES = st.sampled_from(["m5.xlarge", "g4dn.xlarge", "g4dn.12xlarge"])
NAMES = st.sampled_from(["a", "b", "c"])


class Killed(BaseException):
    """Stands for kill -9: no handler of ours may catch it and tidy up."""


class Accounts(RuleBasedStateMachine):
    """One account with one network; control planes and node groups come and go."""

    clusters = Bundle("clusters")
    groups = Bundle("groups")

    def __init__(self) -> None:
        super().__init__()
        self.before = local.backend()
        self.folder = Path(tempfile.mkdtemp())
        self.aws = Aws(self.folder)
        self.aws.cluster()

    def teardown(self) -> None:
        self.aws.account.close()
        local.use(self.before)
        shutil.rmtree(self.folder)

    @rule(target=clusters, name=NAMES)
    def create_cluster(self, name: str) -> object:
        taken = [row for row in self.aws.account.rows(CLUSTER) if row.name == name]
        role = next(row for row in self.aws.account.rows() if row.name == "plane").outputs["arn"]
        given = {"name": name, "roleArn": role, "vpcConfig": {"subnetIds": self.aws.subnets}}
        try:
            made = self.aws.make(CLUSTER, f"{name}-{len(taken)}", **given)
        except CloudError as error:
            assert taken and error.code == "ResourceInUseException"
            return multiple()
        assert not taken
        return made

    @rule(target=groups, cluster=clusters, name=NAMES, machine=MACHINES, size=st.integers(0, 5))
    def create_group(self, cluster: Row, name: str, machine: str, size: int) -> object:
        exists = self.aws.account.named(NODE_GROUP, cluster.region, f"{cluster.name}:{name}") is not None
        there = self.aws.account.named(CLUSTER, cluster.region, cluster.name or "") is not None
        try:
            inputs = self.aws.pool_inputs(name, machine, size, cluster.name or "")
            made = self.aws.make(NODE_GROUP, f"{cluster.name}-{name}-{exists}", **inputs)
        except CloudError as error:
            assert exists or not there or error.code == "AsgInstanceLaunchFailures"
            return multiple()
        assert there and not exists
        return made

    @rule(group=groups, size=st.integers(0, 6))
    def scale(self, group: Row, size: int) -> None:
        if self.aws.account.get(NODE_GROUP, group.key) is None:
            return
        before = self.aws.account.get(NODE_GROUP, group.key)
        try:
            self.aws.update(group, scalingConfig={"minSize": 0, "desiredSize": size, "maxSize": max(size, 1)})
        except CloudError as error:
            assert error.code == "AsgInstanceLaunchFailures"
            assert self.aws.account.get(NODE_GROUP, group.key) == before

    @rule(group=consumes(groups))
    def delete_group(self, group: Row) -> None:
        self.aws.delete(group)
        assert self.aws.account.get(NODE_GROUP, group.key) is None

    @rule(cluster=clusters)
    def delete_cluster(self, cluster: Row) -> None:
        held = self.aws.account.holders(CLUSTER, cluster.key)
        there = self.aws.account.get(CLUSTER, cluster.key) is not None
        if held and there:
            with pytest.raises(CloudError):
                self.aws.delete(cluster)
        else:
            self.aws.delete(cluster)

    @rule(name=NAMES)
    def killed_creation_is_continued(self, name: str) -> None:
        if self.aws.account.named(CLUSTER, "us-east-1", name):
            return
        role = next(row for row in self.aws.account.rows() if row.name == "plane").outputs["arn"]
        given = {"name": name, "roleArn": role, "vpcConfig": {"subnetIds": self.aws.subnets}}

        def killed(*_: object) -> object:
            raise Killed

        create, self.aws.backend.create = self.aws.backend.create, killed  # type: ignore[method-assign, assignment]
        with pytest.raises(Killed):
            self.aws.make(CLUSTER, f"killed-{name}", **given)
        self.aws.backend.create = create  # type: ignore[method-assign]
        half = self.aws.account.named(CLUSTER, "us-east-1", name)
        assert half is not None and half.state == CREATING
        with pytest.raises(CloudError):
            self.aws.make(CLUSTER, f"other-{name}", **given)
        self.aws.restart()
        made = self.aws.make(CLUSTER, f"killed-{name}", **given)
        assert (made.key, made.state) == (half.key, READY)
        self.aws.delete(made)

    @rule()
    def restart(self) -> None:
        self.aws.restart()

    @rule(limit=st.integers(0, 300))
    def set_quota(self, limit: int) -> None:
        used = quota.used(self.aws.account, "L-DB2E81BA", "us-east-1")
        quota.set_limit(self.aws.account, "L-DB2E81BA", max(limit, used))

    @precondition(lambda self: self.aws.account.rows(CLUSTER))
    @rule()
    def the_network_is_held(self) -> None:
        vpc = self.aws.account.rows(VPC)[0]
        with pytest.raises(CloudError, match="DependencyViolation"):
            self.aws.delete(vpc)

    @invariant()
    def everything_is_ready(self) -> None:
        assert all(row.state == READY for row in self.aws.account.rows())

    @invariant()
    def no_quota_is_passed(self) -> None:
        for code, item in CLOUD.quotas.items():
            assert quota.used(self.aws.account, code, "us-east-1") <= quota.limit(self.aws.account, item, "us-east-1")

    @invariant()
    def local_clusters_are_the_control_planes(self) -> None:
        planes = {local.local_name(self.aws.account.name, row.region, row.id) for row in self.aws.account.rows(CLUSTER)}
        assert {cluster.name for cluster in self.aws.backend.list()} == planes

    @invariant()
    def nodes_are_those_asked_for(self) -> None:
        for cluster in self.aws.account.rows(CLUSTER):
            pools = [row for row in self.aws.account.rows(NODE_GROUP) if row.inputs["clusterName"] == cluster.id]
            sizes = [
                (int(row.inputs["scalingConfig"]["desiredSize"]), row.inputs["instanceTypes"][0][0] == "g")
                for row in pools
            ]
            asked = sum(size for size, _ in sizes)
            stands_for = len({gpu for size, gpu in sizes if size})
            found = self.aws.backend.get(local.local_name(self.aws.account.name, cluster.region, cluster.id))
            assert len(found.document["nodes"]) == asked - stands_for


Accounts.TestCase.settings = settings(
    max_examples=20, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAccounts = Accounts.TestCase
