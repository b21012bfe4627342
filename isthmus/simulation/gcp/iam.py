"""Service accounts and the grants of roles to members, on projects and on service accounts.

Grants are kept and their members checked; no request is ever refused for want of a role, since there is no caller whose
rights could be known. The member of a workload identity pool that does not exist yet is refused, as Google does: the
pool comes with the project's first cluster.
"""

from __future__ import annotations

import re

from isthmus.simulation.account import READY
from isthmus.simulation.gcp.base import IAM_DOC, PROJECT, etag, project, project_number
from isthmus.simulation.resource import Behaviour, Call, CloudError, Property, Ref, ResourceType
from isthmus.toolchain.values import Properties

ACCOUNT_ID_RULE = "[a-z]([-a-z0-9]{4,28}[a-z0-9])"
MEMBER_KINDS = ("user:", "group:", "domain:", "serviceAccount:", "principal://", "principalSet://")
PUBLIC_MEMBERS = ("allUsers", "allAuthenticatedUsers")
POOL_MEMBER = re.compile(r"serviceAccount:(?P<pool>[^\[\]]+\.svc\.id\.goog)\[(?P<subject>[^\[\]]+/[^\[\]]+)\]")
CLUSTER_TOKEN = "gcp:container/cluster:Cluster"
ROLE = Property("role", required=True, replaces=True)
MEMBER = Property("member", required=True, replaces=True)
ETAG = Property("etag", computed=True)


def _email(call: Call) -> str:
    return f"{call.inputs['accountId']}@{project(call)}.iam.gserviceaccount.com"


def _validate_account(call: Call) -> None:
    account_id = str(call.inputs.get("accountId", ""))
    if not re.fullmatch(ACCOUNT_ID_RULE, account_id):
        raise CloudError("badRequest", f'"account_id" ("{account_id}") doesn\'t match regexp "^{ACCOUNT_ID_RULE}$"')


def _account(call: Call) -> Properties:
    email = _email(call)
    return {
        "project": project(call),
        "email": email,
        "member": f"serviceAccount:{email}",
        "name": f"projects/{project(call)}/serviceAccounts/{email}",
        "uniqueId": str(10**20 + int(call.account.hexadecimal(call.urn, 16), 16))[:21],
    }


ACCOUNT = ResourceType(
    token="gcp:serviceaccount/account:Account",
    noun="ServiceAccount",
    properties=(
        Property("accountId", required=True, replaces=True),
        Property("displayName"),
        Property("description"),
        Property("disabled", "bool", default=False),
        PROJECT,
        Property("email", computed=True),
        Property("member", computed=True),
        Property("name", computed=True),
        Property("uniqueId", computed=True),
    ),
    make_id=lambda call: f"projects/{project(call)}/serviceAccounts/{_email(call)}",
    create=_account,
    validate=_validate_account,
    name=lambda inputs: str(inputs["accountId"]) if "accountId" in inputs else None,
    everywhere=True,
    aliases=lambda call: (_email(call), f"serviceAccount:{_email(call)}"),
    missing=lambda value: CloudError("notFound", f"Unknown service account: {value}", status=404),
    exists=lambda name: CloudError(
        "alreadyExists", f"Service account {name} already exists within project", status=409
    ),
    create_seconds=(3.0, 12.0),
    delete_seconds=(1.0, 2.0),
    behaviours=(Behaviour("ids are 6 to 30 letters, digits and dashes", "documented", IAM_DOC),),
)


def _check_member(call: Call) -> None:
    """Refuses a member that cannot exist; a service account of this project must exist."""
    member = str(call.inputs["member"])
    if member in PUBLIC_MEMBERS:
        return
    if not member.startswith(MEMBER_KINDS):
        raise CloudError("badRequest", f"Invalid member: {member}")
    pool = POOL_MEMBER.fullmatch(member)
    if pool:
        _check_pool(call, pool["pool"])
        return
    home = f"@{project(call)}.iam.gserviceaccount.com"
    if member.endswith(home) and call.find(ACCOUNT.token, member) is None:
        email = member.partition(":")[2]
        raise CloudError("badRequest", f"Service account {email} does not exist.")


def _check_pool(call: Call, pool: str) -> None:
    for row in call.account.rows(CLUSTER_TOKEN):
        config = row.inputs.get("workloadIdentityConfig") or {}
        if row.state == READY and config.get("workloadPool") == pool:
            return
    raise CloudError(
        "badRequest",
        f"Identity Pool does not exist ({pool}). Please check that you specified a valid resource name as returned in the"
        " `name` attribute in the configuration API.",
    )


def _check_role(call: Call) -> None:
    role = str(call.inputs["role"])
    if not re.fullmatch(r"(roles|projects/[^/]+/roles|organizations/[^/]+/roles)/[A-Za-z0-9_.]+", role):
        raise CloudError("badRequest", f"Invalid value for role: {role}")


def validate_grant(call: Call) -> None:
    """What every grant of a role to a member is checked for."""
    _check_role(call)
    _check_member(call)


MEMBER_REF = Ref("member", ACCOUNT.token, holds=False, foreign=lambda value: True)
"""Grants outlive the account they name: Google keeps them as deleted:serviceAccount:..."""

PROJECT_MEMBER = ResourceType(
    token="gcp:projects/iAMMember:IAMMember",
    noun="IAM Member of Project",
    properties=(Property("project", required=True, replaces=True), ROLE, MEMBER, ETAG),
    make_id=lambda call: f"{call.inputs['project']}/{call.inputs['role']}/{call.inputs['member']}",
    create=etag,
    validate=validate_grant,
    name=lambda inputs: f"{inputs.get('project')}/{inputs.get('role')}/{inputs.get('member')}",
    everywhere=True,
    refs=(MEMBER_REF,),
    create_seconds=(5.0, 10.0),
    delete_seconds=(5.0, 10.0),
    behaviours=(
        Behaviour("a service account that does not exist is refused as a member", "documented", IAM_DOC),
        Behaviour("grants are kept, not enforced", "assumed"),
    ),
)

ACCOUNT_MEMBER = ResourceType(
    token="gcp:serviceaccount/iAMMember:IAMMember",
    noun="IAM Member of service account",
    properties=(Property("serviceAccountId", required=True, replaces=True), ROLE, MEMBER, ETAG),
    make_id=lambda call: f"{call.inputs['serviceAccountId']}/{call.inputs['role']}/{call.inputs['member']}",
    create=etag,
    validate=validate_grant,
    name=lambda inputs: f"{inputs.get('serviceAccountId')}/{inputs.get('role')}/{inputs.get('member')}",
    everywhere=True,
    refs=(Ref("serviceAccountId", ACCOUNT.token, holds=False), MEMBER_REF),
    create_seconds=(2.0, 5.0),
    delete_seconds=(2.0, 5.0),
    behaviours=(
        Behaviour(
            "a member of a workload identity pool is refused before the project's first cluster with workload identity",
            "assumed",
            "(memory, to verify) text of the IAM API",
        ),
    ),
)


def client_config(config: Properties) -> Properties:
    """Answer of getClientConfig: where the provider works. There is no access token to give."""
    return {"id": f"projects/{config['project']}", "project": config["project"], "region": config.get("region", "")}


def project_info(config: Properties) -> Properties:
    """Answer of getProject."""
    name = str(config["project"])
    return {"id": f"projects/{name}", "projectId": name, "name": name, "number": project_number(name)}


TYPES = (ACCOUNT, PROJECT_MEMBER, ACCOUNT_MEMBER)
