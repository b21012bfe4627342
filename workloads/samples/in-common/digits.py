"""What the samples on scikit-learn's digits share: the data, the order of batches and the lines they print. NumPy only.

Every process that reads the same file with the same seed sees the same images in the same order, whatever framework it
trains with, so that runs can be compared.
"""

import gzip
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Whole = NDArray[np.int64]

TEST_IMAGES = 360
"""A fifth of the 1,797 images, chosen by a fixed seed, is kept for the test."""

_printing = threading.Lock()


def say(**fields: object) -> None:
    """One JSON line, at once and whole, also from several threads."""
    with _printing:
        print(json.dumps(fields), flush=True)


def read_digits(path: str | Path | None = None) -> tuple[Floats, Whole]:
    """Images as (n, 64) from 0 to 1 and their digits, in an order that is always the same.

    Args:
        path: digits.csv.gz of scikit-learn; default the setting DATA, else the file beside this one.
    """
    chosen = path or os.environ.get("DATA") or Path(__file__).with_name("digits.csv.gz")
    with gzip.open(chosen, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.RandomState(0).permutation(len(table))]
    images: Floats = (table[:, :64] / 16).astype(np.float32)
    return images, table[:, 64].astype(np.int64)


def train_and_test() -> tuple[Floats, Whole, Floats, Whole]:
    """Images and digits to train with, then those to test with."""
    images, digits = read_digits()
    return images[TEST_IMAGES:], digits[TEST_IMAGES:], images[:TEST_IMAGES], digits[:TEST_IMAGES]


def order(count: int, epoch: int, seed: int) -> Whole:
    """The order of an epoch's images."""
    return np.random.RandomState(seed * 100_003 + epoch).permutation(count).astype(np.int64)


def batches(count: int, batch: int, epoch: int, seed: int) -> Iterator[Whole]:
    """Indices of each whole batch of an epoch; what is left over at its end is left out."""
    shuffled = order(count, epoch, seed)
    for start in range(0, count - batch + 1, batch):
        yield shuffled[start : start + batch]


def part(chosen: Whole, position: int, parts: int) -> Whole:
    """One of so many nearly equal parts of a batch; together they are the batch."""
    return chosen[len(chosen) * position // parts : len(chosen) * (position + 1) // parts]
