"""Runs the provider plugin that stands for Google Cloud. The engine starts it (plugins/resource-gcp-v0...)."""

from isthmus.simulation.gcp.cloud import CLOUD
from isthmus.simulation.server import serve

if __name__ == "__main__":
    serve(CLOUD)
