"""Train the network of `ddp-digits` with as many workers as there are, from two to four, while they come and go.

Started in each worker pod, it is its own torchrun: PyTorch's elastic agent, which starts the program again as the worker. When
a worker is lost, the agents start the others anew with a smaller world; when one comes, with a larger one. They go on with the
epoch after the newest that any of them has kept, so no epoch is done twice. The workers meet at worker 0: if that one is lost,
all begin again.

Settings (environment):
    EPOCHS        passes over the training data, default 30
    BATCH         images per step of all workers together, default 64
    SEED          of the weights and of the order of the images, default 0
    CHECKPOINTS   folder of this worker's checkpoint, default /tmp/checkpoints
    DATA          digits.csv.gz of scikit-learn, default beside this file
    TIMEOUT       seconds a worker waits for the others before it fails, default 300

The training operator sets PET_NNODES (least:most workers), PET_RDZV_ENDPOINT (where they meet) and PET_MAX_RESTARTS.

Standard output is JSON lines. Rank 0 writes `{"metric": "loss", "value", "epoch", "step"}` and workers (how many there were)
after every epoch and at the end accuracy. Lines with "event" tell what happens.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ddp_digits import EPOCHS, TEST_IMAGES, accuracy, load, make_model, read_digits, say, train_epoch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Checkpoint:
    """This worker's file. Replaced whole, so that a kill at any moment leaves the last good one."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "ddp-elastic.pt"

    def save(self, state: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        half = self.path.with_suffix(".half")
        torch.save(state, half)
        half.replace(self.path)

    def read(self) -> bytes | None:
        return self.path.read_bytes() if self.path.is_file() else None


def resume(
    checkpoint: Checkpoint, network: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> tuple[int, int]:
    """Bring every worker to the newest checkpoint that one of them has. Returns the epochs and steps that are done."""
    own = checkpoint.read()
    progress = torch.zeros(dist.get_world_size(), dtype=torch.int64, device=device)
    progress[dist.get_rank()] = load(own)["epoch"] if own else 0
    dist.all_reduce(progress)
    newest = int(progress.argmax().item())
    if progress[newest] == 0:
        return 0, 0
    sent: list[bytes | None] = [own if dist.get_rank() == newest else None]
    dist.broadcast_object_list(sent, src=newest, device=device)
    assert sent[0] is not None
    state = load(sent[0])
    network.load_state_dict(state["model"])
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state["optimizer"]})
    if dist.get_rank() == 0:
        say(event="resumed", epoch=state["epoch"], step=state["step"], world=dist.get_world_size(), source=newest)
        # Once more: rank 0 may have been ended between another worker's checkpoint and its own word.
        say(metric="loss", value=round(state["loss"].item(), 6), epoch=state["epoch"], step=state["step"])
    return state["epoch"], state["step"]


def train(device: torch.device) -> None:
    images, digits = read_digits(os.environ.get("DATA", Path(__file__).with_name("digits.csv.gz")))
    images, digits = images.to(device), digits.to(device)
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    network = make_model().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    checkpoint = Checkpoint(os.environ.get("CHECKPOINTS", "/tmp/checkpoints"))
    first, step = resume(checkpoint, network, optimizer, device)
    model = DistributedDataParallel(network, device_ids=[device] if device.type == "cuda" else None)
    for epoch in range(first, EPOCHS):
        loss, steps = train_epoch(model, optimizer, images[TEST_IMAGES:], digits[TEST_IMAGES:], epoch)
        step += steps
        checkpoint.save(
            {
                "model": network.state_dict(),
                "optimizer": optimizer.state_dict()["state"],
                "epoch": epoch + 1,
                "step": step,
                "loss": torch.tensor(loss, dtype=torch.float64),
            }
        )
        if dist.get_rank() == 0:
            say(metric="loss", value=round(loss, 6), epoch=epoch + 1, step=step)
            say(metric="workers", value=dist.get_world_size(), epoch=epoch + 1, step=step)
    if dist.get_rank() == 0:
        value = accuracy(network, images[:TEST_IMAGES], digits[:TEST_IMAGES])
        say(metric="accuracy", value=round(value, 4), epoch=EPOCHS, step=step)


def launch() -> None:
    """The elastic agent of this pod, as torchrun has it: the command of PyTorch 1.13 itself fails on Python 3.11, where the
    flag "redirect nothing" is none of the flags it looks through."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    least, _, most = os.environ.get("PET_NNODES", "2:4").partition(":")
    config = LaunchConfig(
        min_nodes=int(least),
        max_nodes=int(most or least),
        nproc_per_node=1,
        run_id="ddp-elastic",
        rdzv_backend="c10d",
        rdzv_endpoint=os.environ.get("PET_RDZV_ENDPOINT", "localhost:29400"),
        # A few seconds for late ones once enough have met; by default it waits 30 s at every meeting.
        rdzv_configs={"last_call_timeout": 5, "join_timeout": 300},
        max_restarts=int(os.environ.get("PET_MAX_RESTARTS", "10")),
        monitor_interval=1,
    )
    elastic_launch(config, sys.executable)("-u", __file__)


def main() -> None:
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        launch()
        return
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=int(os.environ.get("TIMEOUT", "300"))))
    say(event="started", rank=dist.get_rank(), world=dist.get_world_size(), backend=backend, torch=torch.__version__)
    train(device)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
