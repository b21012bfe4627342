"""Train a small convolutional network on the scikit-learn digits with PyTorch's DistributedDataParallel.

One process per pod. The training operator sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Over NCCL where the process
has a card, over gloo elsewhere; nothing else differs. Runs on PyTorch 1.13 and 2.x.

Settings (environment):
    EPOCHS        passes over the training data, default 30
    BATCH         images per step of all processes together, default 64
    SEED          of the weights and of the order of the images, default 0
    CHECKPOINTS   folder of the first process's checkpoint, default /checkpoints; "" for none
    DATA          digits.csv.gz of scikit-learn, default beside this file
    TIMEOUT       seconds a process waits for the others before it fails, default 300

Standard output is JSON lines. The first process writes `{"metric": "loss", "value", "epoch", "step"}` after every epoch
(mean over all processes) and at the end `{"metric": "accuracy", ...}`: the share of test images named rightly. Lines with
"event" tell what happens. A process that loses another one fails; started again, all go on from the last checkpoint, with
the same order of images as if nothing had happened.
"""

import gzip
import io
import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TEST_IMAGES = 360
"""A fifth of the 1,797 images, chosen by a fixed seed, is kept for the test."""

EPOCHS = int(os.environ.get("EPOCHS", "30"))
BATCH = int(os.environ.get("BATCH", "64"))
SEED = int(os.environ.get("SEED", "0"))


def say(**fields: object) -> None:
    """One JSON line, at once."""
    print(json.dumps(fields), flush=True)


def read_digits(path: str | Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as (n, 1, 8, 8) from 0 to 1 and their digits, in an order that is always the same."""
    with gzip.open(path, "rt") as file:
        table = numpy.loadtxt(file, delimiter=",", dtype=numpy.float32)
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(0))
    table = torch.from_numpy(table)[order]
    return (table[:, :64] / 16).reshape(-1, 1, 8, 8), table[:, 64].long()


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


class Checkpoint:
    """The first process's file. Written whole or not at all, so that a kill at any moment leaves the last good one."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "ddp-digits.pt" if folder else None

    def save(self, state: dict[str, Any]) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        with part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def read(self) -> bytes | None:
        """The file's bytes if these settings can go on from it, else None. A finished run is not gone on with."""
        if self.path is None or not self.path.is_file():
            return None
        data = self.path.read_bytes()
        state = load(data)
        if (state["seed"], state["batch"], state["world"]) != (SEED, BATCH, dist.get_world_size()):
            say(event="checkpoint-ignored", reason="it was made with another SEED, BATCH or number of processes")
            return None
        if state["epoch"] >= EPOCHS:
            say(event="checkpoint-ignored", reason="its run was finished")
            return None
        return data


def load(data: bytes) -> dict[str, Any]:
    """A checkpoint's content. It holds tensors and whole numbers only, which is all that every PyTorch reads safely."""
    state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return state


def resume(
    checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> tuple[int, int]:
    """Bring every process to the first one's checkpoint. Returns the epoch and the step to go on from."""
    sent: list[bytes | None] = [checkpoint.read() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(sent, src=0, device=device)
    if sent[0] is None:
        return 0, 0
    state = load(sent[0])
    model.load_state_dict(state["model"])
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state["optimizer"]})
    if dist.get_rank() == 0:
        say(event="resumed", epoch=state["epoch"], step=state["step"])
    return state["epoch"], state["step"]


def own_batches(count: int, epoch: int) -> Iterator[torch.Tensor]:
    """This process's part of every batch of an epoch: the same order in every process, each takes its own slice."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SEED * 1_000_003 + epoch))
    rank, world = dist.get_rank(), dist.get_world_size()
    share = max(BATCH // world, 1)
    for start in range(0, count - share * world + 1, share * world):
        yield order[start + rank * share : start + (rank + 1) * share]


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, digits: torch.Tensor, epoch: int
) -> tuple[float, int]:
    """One pass. Returns the mean loss over all processes and the number of steps."""
    model.train()
    loss_of = nn.CrossEntropyLoss()
    total = torch.zeros(2, device=images.device)
    for chosen in own_batches(len(images), epoch):
        optimizer.zero_grad()
        loss = loss_of(model(images[chosen]), digits[chosen])
        loss.backward()
        optimizer.step()
        total += torch.stack([loss.detach(), torch.ones_like(loss)])
    dist.all_reduce(total)
    return (total[0] / total[1]).item(), int(total[1].item()) // dist.get_world_size()


def accuracy(model: nn.Module, images: torch.Tensor, digits: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        return float((model(images).argmax(1) == digits).float().mean().item())


def train(device: torch.device) -> None:
    images, digits = read_digits(os.environ.get("DATA", Path(__file__).with_name("digits.csv.gz")))
    images, digits = images.to(device), digits.to(device)
    torch.manual_seed(SEED)
    network = make_model().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    checkpoint = Checkpoint(os.environ.get("CHECKPOINTS", "/checkpoints"))
    first, step = resume(checkpoint, network, optimizer, device)
    model = DistributedDataParallel(network, device_ids=[device] if device.type == "cuda" else None)
    for epoch in range(first, EPOCHS):
        loss, steps = train_epoch(model, optimizer, images[TEST_IMAGES:], digits[TEST_IMAGES:], epoch)
        step += steps
        if dist.get_rank() == 0:
            say(metric="loss", value=round(loss, 6), epoch=epoch + 1, step=step)
            checkpoint.save(
                {
                    "model": network.state_dict(),
                    "optimizer": optimizer.state_dict()["state"],
                    "epoch": epoch + 1,
                    "step": step,
                    "seed": SEED,
                    "batch": BATCH,
                    "world": dist.get_world_size(),
                }
            )
    if dist.get_rank() == 0:
        value = accuracy(network, images[:TEST_IMAGES], digits[:TEST_IMAGES])
        say(metric="accuracy", value=round(value, 4), epoch=EPOCHS, step=step)


def main() -> None:
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=int(os.environ.get("TIMEOUT", "300"))))
    say(
        event="started",
        rank=dist.get_rank(),
        world=dist.get_world_size(),
        backend=backend,
        torch=torch.__version__,
        cards=os.environ.get("NVIDIA_VISIBLE_DEVICES", ""),
    )
    train(device)
    dist.barrier()
    dist.destroy_process_group()
    say(event="finished", rank=int(os.environ.get("RANK", "0")))


if __name__ == "__main__":
    main()
