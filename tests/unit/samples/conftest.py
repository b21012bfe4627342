"""The sample programs that need nothing but NumPy are imported as their images have them: all in one folder."""

import sys

from workloads.load import SAMPLES

sys.path[:0] = [str(path) for path in sorted(SAMPLES.iterdir()) if path.is_dir()]
