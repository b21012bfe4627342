"""The platform of one stack, composed: settings, cloud, cluster, operators, sample workloads, cost report, outputs.

Nothing is decided here. What differs between clouds is in infra/, what is deployed is in operators/ and workloads/, and
what a stack asks for is in stacks/Pulumi.<stack>.yaml.
"""

import json

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi.runtime.config import CONFIG

from infra import cloud as clouds
from isthmus import catalog, costs
from isthmus.specs import labels, stack
from operators import deploy, device_plugin, dra, training
from workloads import bindings, fit, render

settings = stack.from_config(CONFIG.get(), stack=pulumi.get_stack())
facts = catalog.load()
cloud = clouds.select(settings, facts)
cloud.check()
specs = [render.load(name) for name in settings.samples]
for spec in specs:  # what no node can run is refused before anything is made
    fit.check(spec, fit.pool_nodes(settings.gpu_pools, facts, settings.cloud, settings.region))
training.check(specs, settings.operators, stack=pulumi.get_stack())

# A cluster with its pools, a bucket for data, and an identity that may use it.
platform = cloud.cluster(settings.cluster)
pools = [cloud.node_pool(platform, pool) for pool in settings.gpu_pools]
bucket = cloud.bucket("data")
registry = cloud.image_registry("images")
identity = cloud.workload_identity(platform, labels.RUNS_NAMESPACE, labels.RUNS_ACCOUNT, bucket)

# Objects in the cluster are deleted before its nodes and access rights: they depend on them.
provider = kubernetes.Provider(
    "cluster",
    kubeconfig=cloud.kubeconfig(platform),
    opts=pulumi.ResourceOptions(depends_on=[platform.resource, *(pool.resource for pool in pools)]),
)
namespace = deploy.objects(
    "base",
    [
        *render.namespace(labels.RUNS_NAMESPACE, labels.RUNS_ACCOUNT, identity.annotations),
        *(kind.manifest() for kind in cloud.storage_classes() if not kind.provided),
    ],
    provider,
)
operators = [namespace, *training.deploy(provider, settings.operators)]
if not cloud.provides_device_plugin:
    operators.append(device_plugin.deploy(provider, settings.cluster.pools))
operators += dra.deploy(provider, settings.cluster.pools, depends_on=[namespace])

binding = bindings.for_cloud(settings.cloud)
for spec in specs:
    deploy.objects(
        spec.name, render.render(spec, namespace=labels.RUNS_NAMESPACE, binding=binding), provider, depends_on=operators
    )

pulumi.export("clusterName", platform.name)
pulumi.export("endpoint", platform.endpoint)
pulumi.export("bucket", bucket.url)
pulumi.export("registry", registry.url)
pulumi.export("kubeconfig", cloud.kubeconfig(platform))
pulumi.export("kubeconfigNative", cloud.kubeconfig(platform, native=True))
if settings.cost_report:
    report = costs.report_for(specs, catalog=facts)
    written = render.config_map("cost-report", {"report.json": json.dumps(report, sort_keys=True)})
    deploy.objects("cost-report", [written], provider, depends_on=[namespace])
    pulumi.export("costReport", costs.summary(report))
