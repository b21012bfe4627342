"""Every process's value goes once round the ring, hop by hop, by point-to-point send and receive.

The smallest program that fails when two pods cannot reach each other. One process per pod; the training operator sets
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Over NCCL where the process has a card, over gloo elsewhere. Runs on
PyTorch 1.13 and 2.x.

Settings (environment):
    SIZE      numbers in each value, default 1024
    TIMEOUT   seconds a process waits for the others before it fails, default 300

Standard output is JSON lines: `{"event": "hop", "rank", "hop", "source", "value"}` for each value that arrived as it was
sent, and from the first process `{"metric": "delivered", "value"}`: the share of all hops that did. Anything below 1 makes
every process exit with an error.
"""

import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist


def say(**fields: object) -> None:
    """One JSON line, at once."""
    print(json.dumps(fields), flush=True)


def value_of(rank: int, size: int, device: torch.device) -> torch.Tensor:
    """What the process of that rank sends: no two processes, and no two places, have the same number."""
    return torch.arange(size, dtype=torch.float32, device=device) + rank * size


def pass_on(value: torch.Tensor) -> torch.Tensor:
    """Send to the next process and receive from the one before, both at once so that no order can block."""
    rank, world = dist.get_rank(), dist.get_world_size()
    arrived = torch.empty_like(value)
    if world == 1:
        return value.clone()
    wanted = [
        dist.P2POp(dist.isend, value, (rank + 1) % world),
        dist.P2POp(dist.irecv, arrived, (rank - 1) % world),
    ]
    if dist.get_backend() == "nccl":
        pending = dist.batch_isend_irecv(wanted)
    else:
        pending = [operation.op(operation.tensor, operation.peer) for operation in wanted]
    for request in pending:
        request.wait()
    return arrived


def go_round(size: int, device: torch.device) -> int:
    """One full turn. Returns the number of values that arrived as they were sent."""
    rank, world = dist.get_rank(), dist.get_world_size()
    value, right = value_of(rank, size, device), 0
    for hop in range(1, world + 1):
        value = pass_on(value)
        source = (rank - hop) % world
        if torch.equal(value, value_of(source, size, device)):
            right += 1
            say(event="hop", rank=rank, hop=hop, source=source, value=value[0].item())
        else:
            say(event="wrong", rank=rank, hop=hop, source=source, value=value[0].item())
    return right


def main() -> int:
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=int(os.environ.get("TIMEOUT", "300"))))
    world = dist.get_world_size()
    say(event="started", rank=dist.get_rank(), world=world, backend=backend, torch=torch.__version__)
    total = torch.tensor(float(go_round(int(os.environ.get("SIZE", "1024")), device)), device=device)
    dist.all_reduce(total)
    delivered = total.item() / world**2
    if dist.get_rank() == 0:
        say(metric="delivered", value=delivered, epoch=0, step=world)
    dist.barrier()
    dist.destroy_process_group()
    return 0 if delivered == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
