"""What NVIDIA's programs do on a node with real cards and cannot do here: cut cards, and give them out on claim.

One process for each local cluster (`python -m isthmus.localcluster.agent NAME`), started once a node has cards: of an embedded
cluster its supervisor keeps it, of a kind cluster kind/agent.py. It does two things for each node of nodes.py, by what the
node's labels say now:

- layouts.py, the MIG manager's part: nvidia.com/mig.config names a layout, the agent cuts the driver root's cards so and
  reports in nvidia.com/mig.config.state;
- claims.py and plugin.py, the DRA driver's part: on a node with isthmus.dev/gpu-sharing=dra it publishes the cards as
  ResourceSlices and prepares claims for the kubelet, under the names of NVIDIA's driver, so that claims written for that one
  work here unchanged.
"""
