"""`python -m isthmus.simulation.aws`: the plugin that Pulumi's engine starts as pulumi-resource-aws v0.1.0."""

from isthmus.simulation.aws.cloud import CLOUD
from isthmus.simulation.server import serve

serve(CLOUD)
