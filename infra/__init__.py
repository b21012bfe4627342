"""Clouds: what makes a cluster, its node pools, bucket, registry and identities. One interface, one package per cloud."""
