"""One valid example of every simulated AWS resource type, for test_simulated_resources.py.

`inputs` are made in a world that can make what they name; `change` is an update in place, `replace` one that replaces.
"""

import json

from tests.conformance.world import Example, World

VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
GATEWAY = "aws:ec2/internetGateway:InternetGateway"
EIP = "aws:ec2/eip:Eip"
NAT = "aws:ec2/natGateway:NatGateway"
TABLE = "aws:ec2/routeTable:RouteTable"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
ROLE = "aws:iam/role:Role"
POLICY = "aws:iam/policy:Policy"
CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
ENTRY = "aws:eks/accessEntry:AccessEntry"
BUCKET = "aws:s3/bucket:Bucket"
KEY = "aws:kms/key:Key"

TAGS = {"tags": {"team": "training"}}
CONFIGURATION = {"profile": "aws-test", "region": "us-east-1"}


def trust(service: str) -> str:
    """A trust policy for an AWS service."""
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def policy(action: str = "s3:GetObject") -> str:
    """A permissions policy."""
    statement = {"Effect": "Allow", "Action": [action], "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _role(world: World, service: str) -> str:
    name = service.partition(".")[0]
    return str(world.made(ROLE, name, {"name": name, "assumeRolePolicy": trust(service)})["arn"])


def _subnets(world: World) -> list[str]:
    vpc = world.id(VPC)
    return [
        world.id(
            SUBNET,
            f"subnet-{zone}",
            {"vpcId": vpc, "cidrBlock": f"10.0.{64 + index}.0/24", "availabilityZone": f"us-east-1{zone}"},
        )
        for index, zone in enumerate("ab")
    ]


def _nat(world: World) -> dict[str, object]:
    world.id(GATEWAY)
    return {"subnetId": _subnets(world)[0], "allocationId": world.id(EIP)}


def _node_group(world: World) -> dict[str, object]:
    return {
        "clusterName": world.id(CLUSTER),
        "nodeGroupName": "pool",
        "nodeRoleArn": _role(world, "ec2.amazonaws.com"),
        "subnetIds": _subnets(world),
        "scalingConfig": {"minSize": 0, "desiredSize": 2, "maxSize": 4},
        "instanceTypes": ["m5.xlarge"],
    }


def _association(world: World) -> dict[str, object]:
    world.id(ENTRY)
    return {
        "clusterName": world.id(CLUSTER),
        "principalArn": "arn:aws:iam::111122223333:role/admin",
        "policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
        "accessScope": {"type": "cluster"},
    }


def _setting(**settings: object) -> Example:
    change = {key: value for key, value in settings.items() if key.startswith("_")}
    plain = {key: value for key, value in settings.items() if not key.startswith("_")}
    return Example(
        lambda world: {"bucket": world.id(BUCKET), **plain}, change={key[1:]: value for key, value in change.items()}
    )


_SSE = {"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}}
_RULE = {"ipProtocol": "tcp", "fromPort": 443, "toPort": 443, "cidrIpv4": "10.0.0.0/8"}

EXAMPLES: dict[str, Example] = {
    VPC: Example(lambda world: {"cidrBlock": "10.0.0.0/16"}, change=TAGS, replace={"cidrBlock": "10.1.0.0/16"}),
    SUBNET: Example(
        lambda world: {"vpcId": world.id(VPC), "cidrBlock": "10.0.1.0/24"},
        change={"mapPublicIpOnLaunch": True},
        replace={"cidrBlock": "10.0.2.0/24"},
        alone=True,
    ),
    GATEWAY: Example(lambda world: {"vpcId": world.id(VPC)}, change=TAGS),
    EIP: Example(lambda world: {"domain": "vpc"}, change=TAGS),
    NAT: Example(_nat, change=TAGS, replace={"connectivityType": "private"}),
    TABLE: Example(lambda world: {"vpcId": world.id(VPC)}, change=TAGS),
    "aws:ec2/route:Route": Example(
        lambda world: {
            "routeTableId": world.id(TABLE),
            "destinationCidrBlock": "0.0.0.0/0",
            "gatewayId": world.id(GATEWAY),
        },
        change=lambda world: {"gatewayId": world.id(GATEWAY, "second")},
        replace={"destinationCidrBlock": "192.0.2.0/24"},
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Example(
        lambda world: {"routeTableId": world.id(TABLE), "subnetId": _subnets(world)[0]},
        change=lambda world: {"routeTableId": world.id(TABLE, "second")},
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": Example(
        lambda world: {
            "vpcId": world.id(VPC),
            "serviceName": "com.amazonaws.us-east-1.s3",
            "routeTableIds": [world.id(TABLE)],
        },
        change=TAGS,
        replace={"serviceName": "com.amazonaws.us-east-1.dynamodb"},
    ),
    GROUP: Example(
        lambda world: {"vpcId": world.id(VPC), "description": "nodes"}, change=TAGS, replace={"description": "other"}
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": Example(
        lambda world: {"securityGroupId": world.id(GROUP), **_RULE}, change={"description": "https"}
    ),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": Example(
        lambda world: {"securityGroupId": world.id(GROUP), **_RULE}, change={"description": "https"}
    ),
    TEMPLATE: Example(
        lambda world: {"namePrefix": "nodes-", "vpcSecurityGroupIds": [world.id(GROUP)]},
        change={"metadataOptions": {"httpTokens": "required"}},
    ),
    ROLE: Example(
        lambda world: {"assumeRolePolicy": trust("ec2.amazonaws.com")},
        change={"description": "nodes"},
        replace={"path": "/isthmus/"},
    ),
    POLICY: Example(
        lambda world: {"policy": policy()}, change={"policy": policy("s3:PutObject")}, replace={"path": "/a/"}
    ),
    "aws:iam/rolePolicy:RolePolicy": Example(
        lambda world: {"role": world.id(ROLE), "name": "access", "policy": policy()},
        change={"policy": policy("s3:PutObject")},
        replace={"name": "more"},
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Example(
        lambda world: {"role": world.id(ROLE), "policyArn": world.id(POLICY)},
        replace={"policyArn": "arn:aws:iam::aws:policy/ReadOnlyAccess"},
    ),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": Example(
        lambda world: {"url": "https://oidc.example.com/id/1", "clientIdLists": ["sts.amazonaws.com"]},
        change=TAGS,
        replace={"url": "https://oidc.example.com/id/2"},
    ),
    CLUSTER: Example(
        lambda world: {
            "name": "training",
            "roleArn": _role(world, "eks.amazonaws.com"),
            "vpcConfig": {"subnetIds": _subnets(world), "endpointPrivateAccess": True},
            "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False},
        },
        change={"enabledClusterLogTypes": ["api"]},
        replace={"name": "other"},
    ),
    NODE_GROUP: Example(
        _node_group,
        change={"scalingConfig": {"minSize": 1, "desiredSize": 3, "maxSize": 4}},
        replace={"instanceTypes": ["m5.2xlarge"]},
    ),
    "aws:eks/addon:Addon": Example(
        lambda world: {"clusterName": world.id(CLUSTER), "addonName": "coredns"},
        change={"addonVersion": "v1.14.0-eksbuild.1"},
        replace={"addonName": "kube-proxy"},
    ),
    ENTRY: Example(
        lambda world: {"clusterName": world.id(CLUSTER), "principalArn": "arn:aws:iam::111122223333:role/admin"},
        change={"kubernetesGroups": ["viewers"]},
        replace={"principalArn": "arn:aws:iam::111122223333:user/somebody"},
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": Example(
        _association, replace={"policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"}
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Example(
        lambda world: {
            "clusterName": world.id(CLUSTER),
            "namespace": "default",
            "serviceAccount": "trainer",
            "roleArn": _role(world, "pods.eks.amazonaws.com"),
        },
        change=TAGS,
        replace={"serviceAccount": "other"},
    ),
    BUCKET: Example(
        lambda world: {"forceDestroy": False}, change={"forceDestroy": True}, replace={"bucket": "another"}
    ),
    "aws:s3/bucketVersioning:BucketVersioning": _setting(
        versioningConfiguration={"status": "Enabled"}, _versioningConfiguration={"status": "Suspended"}
    ),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _setting(blockPublicAcls=True, _blockPublicPolicy=True),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _setting(
        rules=[_SSE], _rules=[{**_SSE, "bucketKeyEnabled": True}]
    ),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _setting(
        rule={"objectOwnership": "BucketOwnerEnforced"}, _rule={"objectOwnership": "ObjectWriter"}
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _setting(
        rules=[{"id": "old", "status": "Enabled"}], _rules=[{"id": "old", "status": "Disabled"}]
    ),
    "aws:ecr/repository:Repository": Example(
        lambda world: {"name": "isthmus/images"}, change={"imageTagMutability": "IMMUTABLE"}, replace={"name": "other"}
    ),
    KEY: Example(
        lambda world: {"description": "secrets"}, change={"enableKeyRotation": True}, replace={"multiRegion": True}
    ),
    "aws:kms/alias:Alias": Example(
        lambda world: {"name": "alias/secrets", "targetKeyId": world.id(KEY)},
        change=lambda world: {"targetKeyId": world.id(KEY, "second")},
        replace={"name": "alias/other"},
    ),
    "aws:cloudwatch/logGroup:LogGroup": Example(
        lambda world: {"name": "/aws/eks/training/cluster"}, change={"retentionInDays": 30}, replace={"name": "/other"}
    ),
}
