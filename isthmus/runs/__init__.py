"""Runs: one submission of a workload to a cluster, from its intent to its last metric, the same on every stack."""
