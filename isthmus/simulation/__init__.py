"""The far side of the wire: provider plugins that stand for AWS and Google Cloud. See README.md and COVERAGE.md."""
