"""Service accounts with exactly the roles they are given. None has a key: nodes and pods get tokens by metadata server."""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.names import fit

ACCOUNT_ID_LIMIT = 30


@dataclass(frozen=True)
class ServiceAccountArgs:
    """What a service account is for, and what it may do in the whole project."""

    account_id: str
    project: str
    description: str
    project_roles: tuple[str, ...] = ()


class ServiceAccount(pulumi.ComponentResource):
    """A service account. Outputs: email, member (as IAM names it), name (its resource name)."""

    def __init__(self, name: str, args: ServiceAccountArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:gcp:ServiceAccount", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = gcp.serviceaccount.Account(
            name,
            account_id=fit(args.account_id, ACCOUNT_ID_LIMIT),
            display_name=args.account_id,
            description=args.description,
            opts=child,
        )
        self.name: pulumi.Output[str] = account.name
        self.email: pulumi.Output[str] = account.email
        self.member: pulumi.Output[str] = account.email.apply(lambda email: f"serviceAccount:{email}")
        for role in args.project_roles:
            gcp.projects.IAMMember(
                f"{name}-{role.removeprefix('roles/')}", project=args.project, role=role, member=self.member, opts=child
            )
        self.register_outputs({"email": self.email})


@dataclass(frozen=True)
class BucketAccessArgs:
    """Which Kubernetes service account may use which bucket."""

    project: str
    workload_pool: str
    account_id: str
    namespace: str
    service_account: str
    bucket_name: pulumi.Input[str]
    cluster: pulumi.Resource
    """The project's workload identity pool comes into being with its first cluster."""


class BucketAccess(pulumi.ComponentResource):
    """A service account that pods of one Kubernetes service account act as. Output: email, which the latter must carry."""

    def __init__(self, name: str, args: BucketAccessArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:gcp:BucketAccess", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = ServiceAccount(
            name,
            ServiceAccountArgs(
                args.account_id, args.project, f"Service account {args.namespace}/{args.service_account}"
            ),
            child,
        )
        gcp.storage.BucketIAMMember(
            name, bucket=args.bucket_name, role="roles/storage.objectUser", member=account.member, opts=child
        )
        gcp.serviceaccount.IAMMember(
            name,
            service_account_id=account.name,
            role="roles/iam.workloadIdentityUser",
            member=f"serviceAccount:{args.workload_pool}[{args.namespace}/{args.service_account}]",
            opts=pulumi.ResourceOptions(parent=self, depends_on=[args.cluster]),
        )
        self.email: pulumi.Output[str] = account.email
        self.register_outputs({"email": self.email})
