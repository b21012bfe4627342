"""What every cluster is given, one module each. They take a Kubernetes provider and know no cloud."""
