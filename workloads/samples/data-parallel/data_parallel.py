"""The network of `pipeline-parallel`, whole on each of four ranks: every rank takes its share of the micro-batches of a step,
and gradients are summed over all ranks before every rank takes the same step.

With DistributedDataParallel; the result is that of one process but for rounding, and the loss curve that of
`pipeline-parallel` and `model-parallel`. Nobody waits for another's results, so ranks are idle only where their work is
unequal.

One process per pod. The training operator sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. NCCL where there is a card,
gloo elsewhere. Runs on PyTorch 1.13 and 2.x.

Settings (environment):
    EPOCHS    passes over the training data, default 12
    BATCH     images per step of all ranks together, default 256
    MICRO     micro-batches per step, default 8; a multiple of the ranks
    SEED      of the weights and of the order of the images, default 0
    DATA      digits.csv.gz of scikit-learn, default beside this file
    TIMEOUT   seconds a rank waits for the others before it fails, default 300

Standard output is JSON lines. Rank 0 writes `{"metric": "loss", "value", "epoch", "step"}` (the mean over all ranks) after
every epoch, and at the end accuracy, idle_share (each rank with a core of its own; see blocks.Timeline), idle_share_wall and
steps_per_second.
"""

import contextlib
import os
import time
from datetime import timedelta

import blocks
import digits
import torch
import torch.distributed as dist
from digits import say
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train_step(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    timeline: blocks.Timeline,
    images: torch.Tensor,
    labels: torch.Tensor,
) -> torch.Tensor:
    """One batch. Returns the sum of this rank's losses."""
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = list(zip(images.chunk(blocks.MICRO), labels.chunk(blocks.MICRO), strict=True))[rank::world]
    optimizer.zero_grad()
    total = torch.zeros((), device=images.device)
    for number, (part, of_part) in enumerate(mine, 1):
        # Gradients are exchanged with the last micro-batch only.
        quiet = model.no_sync() if number < len(mine) else contextlib.nullcontext()
        with quiet:

            def piece(part: torch.Tensor = part, of_part: torch.Tensor = of_part) -> torch.Tensor:
                # DDP divides by the number of ranks; the loss is to be the mean over the whole batch.
                loss = blocks.loss_sum(model(part), of_part)
                (loss * world / len(images)).backward()
                return loss.detach()

            total += timeline.work(piece)
    optimizer.step()
    timeline.end_step()
    return total


def train(device: torch.device) -> None:
    images, labels, test_images, test_labels = (torch.from_numpy(part).to(device) for part in digits.train_and_test())
    network = nn.Sequential(*blocks.make_stages()).to(device)
    optimizer = blocks.make_optimizer(network)
    model = DistributedDataParallel(network, device_ids=[device] if device.type == "cuda" else None)
    timeline = blocks.Timeline(device)
    step, begun = 0, time.monotonic()
    for epoch in range(1, blocks.EPOCHS + 1):
        total, seen, steps = torch.zeros((), device=device), 0, 0
        for batch in digits.batches(len(images), blocks.BATCH, epoch, blocks.SEED):
            total += train_step(model, optimizer, timeline, images[batch], labels[batch])
            seen, steps = seen + len(batch), steps + 1
        step += steps
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            say(metric="loss", value=round(total.item() / seen, 6), epoch=epoch, step=step)
    seconds = time.monotonic() - begun
    idle, idle_wall = timeline.idle_shares()
    if dist.get_rank() == 0:
        with torch.no_grad():
            accuracy = (network(test_images).argmax(1) == test_labels).float().mean().item()
        say(metric="accuracy", value=round(accuracy, 4), epoch=blocks.EPOCHS, step=step)
        say(metric="idle_share", value=round(idle, 4), epoch=blocks.EPOCHS, step=step)
        say(metric="idle_share_wall", value=round(idle_wall, 4), epoch=blocks.EPOCHS, step=step)
        say(metric="steps_per_second", value=round(step / seconds, 2), epoch=blocks.EPOCHS, step=step)


def main() -> None:
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=int(os.environ.get("TIMEOUT", "300"))))
    if blocks.MICRO % dist.get_world_size():
        raise SystemExit(f"{blocks.MICRO} micro-batches cannot be shared by {dist.get_world_size()} ranks equally")
    say(event="started", rank=dist.get_rank(), world=dist.get_world_size(), backend=backend, torch=torch.__version__)
    train(device)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
