"""A provider plugin of a simulated cloud over file-backed local clusters: `python -m tests.conformance.plugin aws`."""

import sys

from isthmus.simulation import local
from isthmus.simulation.server import serve
from isthmus.toolchain import home
from tests.local_backend import FileBackend

local.use(FileBackend(home.home() / "file-clusters"))  # type: ignore[arg-type]
if sys.argv[1] == "aws":
    from isthmus.simulation.aws.cloud import CLOUD
else:
    from isthmus.simulation.gcp.cloud import CLOUD
serve(CLOUD)
