"""IAM: roles, policies, and who may assume what. Names are unique in the whole account, whatever the region.

Policy documents are parsed and refused as IAM refuses them (MalformedPolicyDocument). Whether a policy would allow a
call is never evaluated here: the simulated cloud lets the account's owner do everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from isthmus.simulation import clock
from isthmus.simulation.account import Row
from isthmus.simulation.aws.base import ARN, IAM_DOC, PARTITION, TAGS, arn, common, updated
from isthmus.simulation.resource import Autoname, Behaviour, Call, CloudError, Property, Ref, ResourceType

MALFORMED = Behaviour("a document that is no policy is refused, MalformedPolicyDocument", "documented", IAM_DOC)
EXISTING = Behaviour("a name that is taken is refused, EntityAlreadyExists", "documented", IAM_DOC)
CONFLICT = Behaviour("deleting one in use is refused, DeleteConflict", "documented", IAM_DOC)


def _document(text: Any, *, trust: bool) -> None:
    """Refuse what IAM would not parse as a policy. Trust policies name a principal, others a resource."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise CloudError("MalformedPolicyDocument", "This policy contains invalid Json") from error
    if not isinstance(document, dict) or "Statement" not in document:
        raise CloudError("MalformedPolicyDocument", "Syntax errors in policy.")
    statements = document["Statement"]
    for statement in statements if isinstance(statements, list) else [statements]:
        _statement(statement, trust=trust)


def _statement(statement: Any, *, trust: bool) -> None:
    if not isinstance(statement, dict) or statement.get("Effect") not in {"Allow", "Deny"}:
        raise CloudError("MalformedPolicyDocument", "Syntax errors in policy.")
    if not {"Action", "NotAction"} & statement.keys():
        raise CloudError("MalformedPolicyDocument", "Policy statement must contain actions.")
    if trust and {"Resource", "NotResource"} & statement.keys():
        raise CloudError("MalformedPolicyDocument", "Has prohibited field Resource")
    if not trust and not {"Resource", "NotResource"} & statement.keys():
        raise CloudError("MalformedPolicyDocument", "Policy statement must contain resources.")
    if not trust and {"Principal", "NotPrincipal"} & statement.keys():
        raise CloudError("MalformedPolicyDocument", "Policy document should not specify a principal.")


def _exists(noun: str) -> Callable[[str], CloudError]:
    return lambda name: CloudError("EntityAlreadyExists", f"{noun} with name {name} already exists.", status=409)


def _missing(noun: str) -> Callable[[str], CloudError]:
    return lambda name: CloudError("NoSuchEntity", f"The {noun} with name {name} cannot be found.", status=404)


def _delete_conflict(text: str) -> Callable[[str, Row], CloudError]:
    return lambda name, user: CloudError("DeleteConflict", f"{text} (held by {user.id})", status=409)


def _path(call: Call) -> str:
    return str(call.inputs.get("path", "/"))


def _role_arn(call: Call) -> str:
    return arn(call, "iam", f"role{_path(call)}{call.inputs['name']}", everywhere=True)


def _validate_role(call: Call) -> None:
    _document(call.inputs["assumeRolePolicy"], trust=True)
    if len(call.inputs["name"]) > 64:
        raise CloudError(
            "ValidationError",
            f"1 validation error detected: Value '{call.inputs['name']}' at 'roleName' "
            "failed to satisfy constraint: Member must have length less than or equal to 64",
        )


def _unique_id(call: Call, prefix: str) -> str:
    return prefix + call.account.hexadecimal(call.urn, 17).upper()


ROLE = ResourceType(
    token="aws:iam/role:Role",
    noun="IAM Role",
    properties=(
        Property("name", replaces=True),
        Property("namePrefix", replaces=True),
        Property("assumeRolePolicy", required=True, json=True),
        Property("description", default=""),
        Property("forceDetachPolicies", "bool", default=False),
        Property("maxSessionDuration", "int", default=3600),
        Property("path", default="/", replaces=True),
        Property("permissionsBoundary"),
        *TAGS,
        ARN,
        Property("createDate", computed=True),
        Property("uniqueId", computed=True),
    ),
    make_id=lambda call: str(call.inputs["name"]),
    create=lambda call: common(
        call, arn=_role_arn(call), createDate=clock.now(call.account), uniqueId=_unique_id(call, "AROA")
    ),
    update=updated,
    validate=_validate_role,
    name=lambda inputs: inputs.get("name"),
    everywhere=True,
    aliases=lambda call: (_role_arn(call),),
    autoname=Autoname("name", "namePrefix", 64),
    exists=_exists("Role"),
    missing=_missing("role"),
    busy=_delete_conflict("Cannot delete entity, must detach all policies first."),
    behaviours=(
        MALFORMED,
        EXISTING,
        CONFLICT,
        Behaviour("a cluster that uses a role does not keep it from being deleted", "assumed"),
    ),
)


def _managed(value: str) -> bool:
    return value.startswith(f"arn:{PARTITION}:iam::aws:policy/")


def _policy_arn(call: Call) -> str:
    return arn(call, "iam", f"policy{_path(call)}{call.inputs['name']}", everywhere=True)


POLICY = ResourceType(
    token="aws:iam/policy:Policy",
    noun="IAM Policy",
    properties=(
        Property("name", replaces=True),
        Property("namePrefix", replaces=True),
        Property("policy", required=True, json=True),
        Property("description", replaces=True, default=""),
        Property("path", default="/", replaces=True),
        *TAGS,
        ARN,
        Property("policyId", computed=True),
        Property("attachmentCount", "int", computed=True),
    ),
    make_id=_policy_arn,
    create=lambda call: common(call, arn=call.id, policyId=_unique_id(call, "ANPA"), attachmentCount=0),
    update=updated,
    read=lambda call: {"attachmentCount": len(call.account.holders(call.type.token, call.key))},
    validate=lambda call: _document(call.inputs["policy"], trust=False),
    name=lambda inputs: inputs.get("name"),
    everywhere=True,
    autoname=Autoname("name", "namePrefix", 128),
    exists=_exists("A policy called"),
    missing=lambda value: CloudError(
        "NoSuchEntity", f"Policy {value} does not exist or is not attachable.", status=404
    ),
    busy=_delete_conflict("Cannot delete a policy attached to entities."),
    behaviours=(MALFORMED, EXISTING, CONFLICT),
)

ROLE_POLICY = ResourceType(
    token="aws:iam/rolePolicy:RolePolicy",
    noun="IAM Role Policy",
    properties=(
        Property("role", required=True, replaces=True),
        Property("name", replaces=True),
        Property("namePrefix", replaces=True),
        Property("policy", required=True, json=True),
    ),
    make_id=lambda call: f"{call.inputs['role']}:{call.inputs['name']}",
    create=common,
    validate=lambda call: _document(call.inputs["policy"], trust=False),
    name=lambda inputs: f"{inputs.get('role')}:{inputs['name']}" if "name" in inputs else None,
    everywhere=True,
    autoname=Autoname("name", "namePrefix", 128),
    refs=(Ref("role", ROLE.token),),
    exists=_exists("Policy"),
    missing=_missing("role policy"),
    behaviours=(
        MALFORMED,
        Behaviour("PutRolePolicy of an existing name overwrites; here a second resource is refused", "assumed"),
    ),
)

ROLE_POLICY_ATTACHMENT = ResourceType(
    token="aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    noun="IAM Role Policy Attachment",
    properties=(Property("role", required=True, replaces=True), Property("policyArn", required=True, replaces=True)),
    make_id=lambda call: f"{call.inputs['role']}/{call.inputs['policyArn']}",
    create=common,
    name=lambda inputs: f"{inputs.get('role')}/{inputs.get('policyArn')}",
    everywhere=True,
    refs=(Ref("role", ROLE.token), Ref("policyArn", POLICY.token, foreign=_managed)),
    exists=_exists("Attachment"),
    missing=_missing("attachment"),
    behaviours=(
        Behaviour("attaching a policy that does not exist is refused, NoSuchEntity", "documented", IAM_DOC),
        Behaviour("any ARN under arn:aws:iam::aws:policy/ counts as an AWS managed policy", "assumed"),
        Behaviour("attaching twice is no error with IAM; here a second resource is refused", "assumed"),
    ),
)

OPEN_ID_CONNECT_PROVIDER = ResourceType(
    token="aws:iam/openIdConnectProvider:OpenIdConnectProvider",
    noun="IAM OIDC Provider",
    properties=(
        Property("url", required=True, replaces=True),
        Property("clientIdLists", "list", required=True, unordered=True),
        Property("thumbprintLists", "list", filled=True),
        *TAGS,
        ARN,
    ),
    make_id=lambda call: arn(
        call, "iam", f"oidc-provider/{call.inputs['url'].removeprefix('https://')}", everywhere=True
    ),
    create=lambda call: common(
        call, arn=call.id, thumbprintLists=call.inputs.get("thumbprintLists", [call.account.hexadecimal(call.urn, 40)])
    ),
    update=updated,
    name=lambda inputs: inputs.get("url"),
    everywhere=True,
    exists=lambda name: CloudError("EntityAlreadyExists", f"Provider with url {name} already exists.", status=409),
    missing=lambda value: CloudError("NoSuchEntity", f"OpenIDConnect Provider not found for arn {value}", status=404),
    behaviours=(EXISTING, Behaviour("no token is ever checked against it", "assumed")),
)

TYPES = (ROLE, POLICY, ROLE_POLICY, ROLE_POLICY_ATTACHMENT, OPEN_ID_CONNECT_PROVIDER)
