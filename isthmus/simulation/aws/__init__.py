"""Simulated AWS: resource types and functions of pulumi_aws 7.51.1 as far as the platform uses them."""
