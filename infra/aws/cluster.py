"""The EKS control plane: encryption, logs, access and the add-ons that nodes need before they exist.

Access is by access entries only (authentication mode API): no aws-auth ConfigMap that could lock everyone out. The
rights of whoever deploys are a resource of this program, not a side effect of creation, so they can be seen and taken
away. The log group is made here, before EKS makes one that keeps logs for ever.
"""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.network import Network
from infra.aws.roles import POD_IDENTITY, Role, RoleArgs

LOG_TYPES = ["api", "audit", "authenticator", "controllerManager", "scheduler"]
LOG_DAYS = 30
KEY_DELETION_DAYS = 7
"""The shortest that KMS allows; a torn-down cluster's key costs nothing after that."""
SERVICE_CIDR = "172.20.0.0/16"
"""Kubernetes services; must not overlap the VPC."""
CLUSTER_ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


@dataclass(frozen=True)
class ControlPlaneArgs:
    """What a control plane needs to know."""

    cluster_name: str
    region: str
    kubernetes_version: str
    network: Network
    admins: tuple[str, ...]
    """IAM principals who administer the cluster besides its creator."""
    deletion_protection: bool


class ControlPlane(pulumi.ComponentResource):
    """An EKS cluster. Outputs: name, endpoint, ca_certificate (base64), security_group_id (control plane and nodes)."""

    def __init__(self, name: str, args: ControlPlaneArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:aws:ControlPlane", name, None, opts)
        self._name = name
        self._args = args
        self._child = pulumi.ResourceOptions(parent=self)
        self.cluster = self._cluster(self._role(), self._key(), self._log_group())
        access = self._access()
        early = self._daemon_addons()
        self.name: pulumi.Output[str] = self.cluster.name
        self.ready: list[pulumi.Resource] = [*access, *early]
        """Nodes depend on these, so they are deleted before the add-on that frees their network interfaces (case A04)."""
        self.endpoint: pulumi.Output[str] = self.cluster.endpoint
        self.ca_certificate: pulumi.Output[str] = self.cluster.certificate_authority.apply(lambda ca: ca.data or "")
        self.security_group_id: pulumi.Output[str] = self.cluster.vpc_config.apply(
            lambda config: config.cluster_security_group_id or ""
        )
        self.register_outputs({"endpoint": self.endpoint})

    def _role(self) -> Role:
        return self._make_role("control-plane", "eks.amazonaws.com", "EKS control plane", "AmazonEKSClusterPolicy")

    def _make_role(self, use: str, service: str, description: str, policy: str) -> Role:
        role_name = f"{self._args.cluster_name}-{self._args.region}-{use}"
        return Role(f"{self._name}-{use}", RoleArgs(role_name, service, description, managed=(policy,)), self._child)

    def _key(self) -> aws.kms.Key:
        return aws.kms.Key(
            f"{self._name}-secrets",
            description=f"Kubernetes secrets of {self._args.cluster_name}",
            enable_key_rotation=True,
            deletion_window_in_days=KEY_DELETION_DAYS,
            opts=self._child,
        )

    def _log_group(self) -> aws.cloudwatch.LogGroup:
        return aws.cloudwatch.LogGroup(
            f"{self._name}-logs",
            name=f"/aws/eks/{self._args.cluster_name}/cluster",
            retention_in_days=LOG_DAYS,
            opts=self._child,
        )

    def _cluster(self, role: Role, key: aws.kms.Key, logs: aws.cloudwatch.LogGroup) -> aws.eks.Cluster:
        args = self._args
        return aws.eks.Cluster(
            self._name,
            name=args.cluster_name,
            role_arn=role.arn,
            version=args.kubernetes_version,
            access_config={"authentication_mode": "API", "bootstrap_cluster_creator_admin_permissions": False},
            # The add-ons below take the place of those that EKS would install unmanaged.
            bootstrap_self_managed_addons=False,
            vpc_config={
                "subnet_ids": args.network.private_subnet_ids,
                "endpoint_private_access": True,
                "endpoint_public_access": True,
            },
            kubernetes_network_config={"service_ipv4_cidr": SERVICE_CIDR, "ip_family": "ipv4"},
            encryption_config={"provider": {"key_arn": key.arn}, "resources": ["secrets"]},
            enabled_cluster_log_types=LOG_TYPES,
            # No surprise bill: at the end of standard support EKS upgrades rather than charging six times the price.
            upgrade_policy={"support_type": "STANDARD"},
            deletion_protection=args.deletion_protection,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[role, logs], protect=args.deletion_protection),
        )

    def _access(self) -> list[pulumi.Resource]:
        """An entry with the administrator policy for the creator and for each of the admins.

        The creator is whoever runs the first `up`; ignoring later changes keeps the next person's `up` from taking it.
        """
        caller = aws.get_caller_identity_output(opts=pulumi.InvokeOutputOptions(parent=self))
        session = aws.iam.get_session_context_output(arn=caller.arn, opts=pulumi.InvokeOutputOptions(parent=self))
        made = self._administrator(f"{self._name}-creator", session.issuer_arn, ignore_principal=True)
        for arn in self._args.admins:
            made += self._administrator(f"{self._name}-admin-{arn.rsplit('/', 1)[-1]}", arn, ignore_principal=False)
        return made

    def _administrator(self, name: str, arn: pulumi.Input[str], *, ignore_principal: bool) -> list[pulumi.Resource]:
        ignored = ["principalArn"] if ignore_principal else None
        opts = pulumi.ResourceOptions(parent=self, ignore_changes=ignored)
        entry = aws.eks.AccessEntry(name, cluster_name=self.cluster.name, principal_arn=arn, type="STANDARD", opts=opts)
        association = aws.eks.AccessPolicyAssociation(
            name,
            cluster_name=self.cluster.name,
            principal_arn=entry.principal_arn,
            policy_arn=CLUSTER_ADMIN,
            access_scope={"type": "cluster"},
            opts=opts,
        )
        return [entry, association]

    def _daemon_addons(self) -> list[pulumi.Resource]:
        """Add-ons that run on every node and are active without one. The CNI gets its rights by pod identity, so that
        the node role does not carry them for every pod that reaches the instance metadata."""
        agent = addon(self._name, self.cluster, "eks-pod-identity-agent", self._child)
        proxy = addon(self._name, self.cluster, "kube-proxy", self._child)
        role = self._make_role("vpc-cni", POD_IDENTITY, "Network interfaces of nodes", "AmazonEKS_CNI_Policy")
        cni = addon(
            self._name,
            self.cluster,
            "vpc-cni",
            pulumi.ResourceOptions(parent=self, depends_on=[agent, role]),
            identity=("aws-node", role.arn),
        )
        return [agent, proxy, cni]


def addon(
    name: str,
    cluster: aws.eks.Cluster,
    addon_name: str,
    opts: pulumi.ResourceOptions,
    *,
    identity: tuple[str, pulumi.Input[str]] | None = None,
) -> aws.eks.Addon:
    """A managed add-on in the version that EKS defaults to for the cluster's Kubernetes version.

    Args:
        identity: the add-on's service account and the role it acts as.
    """
    associations: list[aws.eks.AddonPodIdentityAssociationArgsDict] | None = None
    if identity:
        associations = [{"service_account": identity[0], "role_arn": identity[1]}]
    return aws.eks.Addon(
        f"{name}-{addon_name}",
        cluster_name=cluster.name,
        addon_name=addon_name,
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="PRESERVE",
        pod_identity_associations=associations,
        opts=opts,
    )
