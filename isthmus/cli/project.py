"""Where the Pulumi program lies, and the settings of its stacks."""

from pathlib import Path

from isthmus.specs import stack as stack_settings
from isthmus.specs.stack import StackSettings


def root() -> Path:
    """The folder of the Pulumi program: the nearest one upward with our Pulumi.yaml, else the checkout we run from."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "Pulumi.yaml").is_file() and (folder / stack_settings.CONFIG_DIR).is_dir():
            return folder
    return Path(__file__).resolve().parents[2]


def settings(stack: str) -> StackSettings:
    """The settings of a stack; InvalidSpec as in isthmus.specs.stack.load."""
    return stack_settings.load(root(), stack)
