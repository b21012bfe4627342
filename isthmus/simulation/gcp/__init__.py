"""The far side of Google Cloud: what `infra/gcp` asks for, over an account in a file. Entry: `python -m` this package."""
