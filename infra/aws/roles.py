"""IAM roles with exactly the managed policies or statements they are given."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from infra.names import fit

ROLE_NAME_LIMIT = 64
POD_IDENTITY = "pods.eks.amazonaws.com"
"""The service that hands a role's credentials to pods (EKS Pod Identity). It tags sessions, hence sts:TagSession."""


@dataclass(frozen=True)
class RoleArgs:
    """Who may take a role, and what it may do."""

    role_name: str
    """In IAM, where names are shared by all regions of an account."""
    service: str
    """The AWS service that assumes it, for example ec2.amazonaws.com."""
    description: str
    managed: Sequence[str] = ()
    """Names of AWS managed policies, with their path ("service-role/X") where they have one."""
    statements: pulumi.Input[Sequence[Mapping[str, Any]]] | None = None
    """Statements of an inline policy."""


class Role(pulumi.ComponentResource):
    """A role. Outputs: arn. What uses the role depends on the component, hence on its policies too."""

    def __init__(self, name: str, args: RoleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:aws:Role", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        role = aws.iam.Role(
            name,
            name=fit(args.role_name, ROLE_NAME_LIMIT),
            description=args.description,
            assume_role_policy=trust(args.service),
            opts=child,
        )
        for policy in args.managed:
            aws.iam.RolePolicyAttachment(
                f"{name}-{policy.rsplit('/', 1)[-1]}",
                role=role.name,
                policy_arn=f"arn:aws:iam::aws:policy/{policy}",
                opts=child,
            )
        if args.statements is not None:
            aws.iam.RolePolicy(name, name="access", role=role.name, policy=_policy(args.statements), opts=child)
        self.arn: pulumi.Output[str] = role.arn
        self.register_outputs({"arn": self.arn})


def trust(service: str) -> str:
    """The trust policy that lets one AWS service assume a role."""
    actions = ["sts:AssumeRole", "sts:TagSession"] if service == POD_IDENTITY else ["sts:AssumeRole"]
    return _document([{"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}])


def _policy(statements: pulumi.Input[Sequence[Mapping[str, Any]]]) -> pulumi.Output[str]:
    return pulumi.Output.from_input(statements).apply(_document)


def _document(statements: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
