"""Names of cloud resources: readable, the same in every run, and never longer than the cloud takes."""

import hashlib

_DIGEST = 8


def fit(name: str, limit: int) -> str:
    """`name` if it has at most `limit` characters, else its start and eight hex digits of its SHA-256.

    Two different names stay different, and a name never changes between runs.
    """
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: limit - _DIGEST - 1].rstrip('-')}-{digest}"
