"""Names of the local clusters behind simulated control planes. Imports nothing, so that asking for a name is cheap."""

import hashlib
import re

LIMIT = 40
DIGEST = 8


def local_name(account: str, region: str, cluster: str) -> str:
    """The local cluster's name of a simulated control plane: a DNS label of at most 40 characters.

    Readable where it fits; cut, or with characters that a label cannot hold, it ends in eight hex digits of its SHA-256,
    so two different clusters never share a name.
    """
    whole = f"{account}-{region}-{cluster}"
    if len(whole) <= LIMIT and re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", whole):
        return whole
    plain = re.sub(r"[^a-z0-9-]+", "-", whole.lower()).strip("-")
    stem = plain if plain[:1].isalpha() else f"a{plain}"
    digest = hashlib.sha256(whole.encode()).hexdigest()[:DIGEST]
    return f"{stem[: LIMIT - DIGEST - 1].rstrip('-')}-{digest}"
