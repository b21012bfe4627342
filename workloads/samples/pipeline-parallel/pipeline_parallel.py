"""One network over four ranks, a stage each, with micro-batches as in GPipe: while a stage works on one micro-batch, the next
stage works on the one before.

A batch is cut in MICRO micro-batches. All go forward, then all go backward in the opposite order, then every stage takes its
step: so the result is that of one process but for rounding. With MICRO=1 it is plain model parallel training, in which one
rank works and the others wait. Of p ranks and m micro-batches the idle share is (p-1)/(m+p-1) (Huang et al., GPipe, 2019,
section 2.3).

One process per pod. The training operator sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. NCCL where there is a card,
gloo elsewhere. Runs on PyTorch 1.13 and 2.x.

Settings (environment):
    EPOCHS    passes over the training data, default 12
    BATCH     images per step, default 256
    MICRO     micro-batches per step, default 8
    SEED      of the weights and of the order of the images, default 0
    DATA      digits.csv.gz of scikit-learn, default beside this file
    TIMEOUT   seconds a rank waits for the others before it fails, default 300

Standard output is JSON lines. The last rank writes `{"metric": "loss", "value", "epoch", "step"}` after every epoch, and at
the end accuracy, idle_share (each rank with a core of its own; see blocks.Timeline), idle_share_wall (by the clock, on the
cores there are), idle_share_expected and steps_per_second.
"""

import os
import time
from datetime import timedelta

import blocks
import digits
import torch
import torch.distributed as dist
from digits import say
from torch import nn


class Stage:
    """This rank's part of the network, between the rank before and the one after."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self.module = module.to(device)
        self.optimizer = blocks.make_optimizer(self.module)
        self.timeline = blocks.Timeline(device)
        self.device = device
        self.rank, self.last = dist.get_rank(), dist.get_world_size() - 1

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """One batch. Returns its mean loss; on ranks other than the last 0."""
        self.optimizer.zero_grad()
        kept, total = [], 0.0
        parts = list(zip(images.chunk(blocks.MICRO), labels.chunk(blocks.MICRO), strict=True))
        sizes = [len(part) for part, _ in parts]
        for part, of_part in parts:
            inputs, outputs = self.forward(part)
            if self.rank == self.last:
                # The loss belongs to the last stage's backward work: it is summed there, piece by piece.
                outputs = blocks.loss_sum(outputs, of_part) / len(images)
                total += float(outputs.detach())
            kept.append((inputs, outputs))
        for (inputs, outputs), size in zip(reversed(kept), reversed(sizes), strict=True):
            self.backward(inputs, outputs, size)
        self.optimizer.step()
        self.timeline.end_step()
        return total

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A micro-batch through this stage: its input and its output."""
        ready = 0.0
        inputs = images
        if self.rank > 0:
            inputs, ready = self._receive((len(images), blocks.WIDTH), self.rank - 1)
            inputs.requires_grad_()
        outputs = self.timeline.work(lambda: self.module(inputs), ready)
        if self.rank < self.last:
            self._send(outputs.detach(), self.rank + 1)
        return inputs, outputs

    def backward(self, inputs: torch.Tensor, outputs: torch.Tensor, size: int) -> None:
        """The gradient of a micro-batch back through this stage."""
        gradient, ready = None, 0.0
        if self.rank < self.last:
            gradient, ready = self._receive((size, blocks.WIDTH), self.rank + 1)
        self.timeline.work(lambda: outputs.backward(gradient), ready)
        if self.rank > 0:
            assert inputs.grad is not None
            self._send(inputs.grad, self.rank - 1)

    def _send(self, tensor: torch.Tensor, to: int) -> None:
        """With it goes the moment on the time line at which it was ready."""
        dist.send(torch.tensor([self.timeline.now], dtype=torch.float64, device=self.device), to)
        dist.send(tensor.contiguous(), to)

    def _receive(self, shape: tuple[int, int], source: int) -> tuple[torch.Tensor, float]:
        moment = torch.empty(1, dtype=torch.float64, device=self.device)
        tensor = torch.empty(shape, device=self.device)
        dist.recv(moment, source)
        dist.recv(tensor, source)
        return tensor, float(moment)

    def evaluate(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """The share of images named rightly; on ranks other than the last 0."""
        with torch.no_grad():
            _, outputs = self.forward(images)
            return float((outputs.argmax(1) == labels).float().mean()) if self.rank == self.last else 0.0


def train(device: torch.device) -> None:
    images, labels, test_images, test_labels = (torch.from_numpy(part).to(device) for part in digits.train_and_test())
    stage = Stage(blocks.make_stages()[dist.get_rank()], device)
    step, begun = 0, time.monotonic()
    reports = stage.rank == stage.last
    for epoch in range(1, blocks.EPOCHS + 1):
        total, steps = 0.0, 0
        for batch in digits.batches(len(images), blocks.BATCH, epoch, blocks.SEED):
            total += stage.step(images[batch], labels[batch])
            steps += 1
        step += steps
        if reports:
            say(metric="loss", value=round(total / steps, 6), epoch=epoch, step=step)
    seconds = time.monotonic() - begun
    idle, idle_wall = stage.timeline.idle_shares()
    accuracy = stage.evaluate(test_images, test_labels)
    if reports:
        others = stage.last  # p - 1
        say(metric="accuracy", value=round(accuracy, 4), epoch=blocks.EPOCHS, step=step)
        say(metric="idle_share", value=round(idle, 4), epoch=blocks.EPOCHS, step=step)
        say(metric="idle_share_wall", value=round(idle_wall, 4), epoch=blocks.EPOCHS, step=step)
        expected = others / (blocks.MICRO + others)
        say(metric="idle_share_expected", value=round(expected, 4), epoch=blocks.EPOCHS, step=step)
        say(metric="steps_per_second", value=round(step / seconds, 2), epoch=blocks.EPOCHS, step=step)


def main() -> None:
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=int(os.environ.get("TIMEOUT", "300"))))
    if dist.get_world_size() != blocks.STAGES:
        raise SystemExit(f"the network has {blocks.STAGES} stages and there are {dist.get_world_size()} ranks")
    say(event="started", rank=dist.get_rank(), world=dist.get_world_size(), backend=backend, torch=torch.__version__)
    train(device)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
