"""Answer questions one at a time with a small model: what many a served model does with its card.

Learns the ten digits of the scikit-learn data for a moment (a linear model), then names images one by one until its time is
up, as a server with one client would. The processes know nothing of each other. Runs on PyTorch 1.13 and 2.x.

Settings (environment):
    SECONDS       time in which it answers, default 10
    SEED          of the weights, default 0
    DATA          digits.csv.gz of scikit-learn, default beside this file

Standard output is JSON lines: the cards that it was given (`nvidia-smi -L`, where there is one), then `requests_per_second`,
`latency_ms` (the median) and `latency_p99_ms` of its answers, and `accuracy`: the share of them that are right.
"""

import gzip
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy
import torch
from torch import nn

TEST_IMAGES = 360
"""A fifth of the 1,797 images, chosen by a fixed seed, is asked about; the model learns from the rest."""
STEPS = 100


def say(**fields: object) -> None:
    """One JSON line, at once."""
    print(json.dumps(fields), flush=True)


def cards() -> list[str]:
    """The cards, or MIG devices, that this process sees."""
    if shutil.which("nvidia-smi") is None:
        return []
    done = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return [line.strip() for line in done.stdout.decode().splitlines()]


def read_digits(path: Path, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as rows of 64 numbers from 0 to 1 and their digits, in an order that is always the same."""
    with gzip.open(path, "rt") as file:
        table = torch.from_numpy(numpy.loadtxt(file, delimiter=",", dtype=numpy.float32))
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(0))]
    return (table[:, :64] / 16).to(device), table[:, 64].long().to(device)


def learn(images: torch.Tensor, digits: torch.Tensor) -> nn.Module:
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = nn.Linear(64, 10).to(images.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), digits).backward()
        optimizer.step()
    return model.eval()


def answer(model: nn.Module, images: torch.Tensor, digits: torch.Tensor, seconds: float) -> tuple[list[float], int]:
    """Name images one by one, again and again; the time of each answer and how many were right."""
    took: list[float] = []
    right = 0
    end = time.perf_counter() + seconds
    while not took or time.perf_counter() < end:
        number = len(took) % len(images)
        begun = time.perf_counter()
        named = int(model(images[number : number + 1]).argmax(1).item())  # item() waits for the card
        took.append(time.perf_counter() - begun)
        right += named == int(digits[number])
    return took, right


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    say(event="started", device=str(device), cards=cards())
    path = Path(os.environ.get("DATA", str(Path(__file__).with_name("digits.csv.gz"))))
    images, digits = read_digits(path, device)
    model = learn(images[TEST_IMAGES:], digits[TEST_IMAGES:])
    with torch.no_grad():
        took, right = answer(model, images[:TEST_IMAGES], digits[:TEST_IMAGES], float(os.environ.get("SECONDS", "10")))
    ordered = sorted(took)
    say(metric="requests_per_second", value=round(len(took) / sum(took), 1), epoch=None, step=len(took))
    say(metric="latency_ms", value=round(1000 * ordered[len(ordered) // 2], 4), epoch=None, step=len(took))
    say(metric="latency_p99_ms", value=round(1000 * ordered[len(ordered) * 99 // 100], 4), epoch=None, step=len(took))
    say(metric="accuracy", value=round(right / len(took), 4), epoch=None, step=len(took))


if __name__ == "__main__":
    main()
