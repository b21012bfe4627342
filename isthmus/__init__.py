"""The toolkit: one package behind the `isthmus` command.

Layers, lowest first: specs and catalog; toolchain and kube; localcluster; (the platform: infra, operators,
workloads); runs and costs; cli. `simulation` stands apart: only cli and tests import it. import-linter holds this.
"""
