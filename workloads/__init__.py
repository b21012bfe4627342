"""What runs on the platform: workload files, and the pure function that turns one into manifests."""
