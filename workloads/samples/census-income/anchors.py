"""Anchors: a few features of a row that by themselves make a model say what it says of it.

After Ribeiro, Singh and Guestrin, "Anchors: High-Precision Model-Agnostic Explanations" (AAAI 2018): the anchor's precision is
the share of rows drawn like the training rows, with the anchor's features held, of which the model says the same. Found by a
beam search over growing sets of features, with bounds from the Kullback-Leibler divergence (Kaufmann and Kalyanakrishnan,
2013) to spend few samples on bad candidates. Written here because the library that is usually taken, alibi, has had a licence
for non-production use only (BSL) since 0.9.5, and what there is besides has had no release for years.

Numbers are held within their quarter of the training rows, categories to their value. NumPy only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Rows = np.ndarray[Any, Any]
Predict = Callable[[Rows], Rows]

BATCH = 200
"""Rows that a candidate is given at a time."""

BEAM = 3
"""Candidates of a size that are kept to grow."""

RISK = 0.05
"""How probable it may be that a bound is wrong."""

PROOF = 5_000
"""Fresh rows on which the chosen anchor's precision is measured."""


class People:
    """The training rows, and rows drawn like them."""

    def __init__(self, rows: Rows, numbers: frozenset[int], random: np.random.RandomState) -> None:
        """
        Args:
            rows: the training rows.
            numbers: which features are numbers; the others are categories.
        """
        self.rows, self._numbers, self._random = rows, numbers, random
        self._edges = {place: np.quantile(rows[:, place], (0.25, 0.5, 0.75)) for place in numbers}

    @property
    def features(self) -> int:
        """How many features a row has."""
        return int(self.rows.shape[1])

    def alike(self, row: Rows, place: int) -> Rows:
        """Which training rows have the same value of a feature, or one in the same quarter."""
        column = self.rows[:, place]
        if place not in self._numbers:
            return np.asarray(column == row[place])
        edges = self._edges[place]
        return np.asarray(np.searchsorted(edges, column) == np.searchsorted(edges, row[place]))

    def draw(self, row: Rows, anchor: Sequence[int], count: int) -> Rows:
        """Training rows by chance, the anchor's features held: a number takes another's value of the same quarter."""
        drawn: Rows = self.rows[self._random.randint(len(self.rows), size=count)].copy()
        for place in anchor:
            pool = self.rows[self.alike(row, place), place]
            drawn[:, place] = pool[self._random.randint(len(pool), size=count)] if len(pool) else row[place]
        return drawn

    def coverage(self, row: Rows, anchor: Sequence[int]) -> float:
        """The share of training rows that an anchor speaks of."""
        held = np.ones(len(self.rows), bool)
        for place in anchor:
            held &= self.alike(row, place)
        return float(held.mean())

    def words(self, place: int, value: float, name: str, meanings: Sequence[str] | None) -> str:
        """A feature of a row in words."""
        if meanings is not None:
            return f"{name} is {meanings[int(value)]}"
        low, middle, high = self._edges[place]
        # Quarters can be empty: most people have no capital gain.
        if value <= low:
            return f"{name} is at most {low:g}"
        if value <= middle:
            return f"{name} is more than {low:g} and at most {middle:g}"
        return (
            f"{name} is more than {middle:g} and at most {high:g}" if value <= high else f"{name} is more than {high:g}"
        )


@dataclass
class Candidate:
    """Features that might be the anchor, and what samples say of them."""

    features: tuple[int, ...]
    samples: int = 0
    agreeing: int = 0

    @property
    def precision(self) -> float:
        """As measured so far."""
        return self.agreeing / self.samples if self.samples else 0.0

    def low(self, level: float) -> float:
        """What the precision is at least, but for RISK."""
        return _bound(self.precision, level / max(self.samples, 1), -1) if self.samples else 0.0

    def high(self, level: float) -> float:
        """What the precision is at most, but for RISK."""
        return _bound(self.precision, level / max(self.samples, 1), +1) if self.samples else 1.0


@dataclass(frozen=True)
class Anchor:
    """An explanation."""

    features: tuple[int, ...]
    precision: float
    """Measured on PROOF fresh rows that the search has not seen."""
    coverage: float
    samples: int = field(compare=False, default=0)
    """Rows that the model was asked about."""


def explain(predict: Predict, row: Rows, people: People, *, precision: float) -> Anchor:
    """The anchor of the fewest features that reaches the precision; of those of a size the one that speaks of most rows.

    Raises:
        ValueError: not even all features together reach it (the model contradicts itself on equal rows).
    """
    said = predict(row[None])[0]
    asked = 0

    def sample(candidate: Candidate, count: int = BATCH) -> None:
        nonlocal asked
        drawn = people.draw(row, candidate.features, count)
        candidate.agreeing += int((predict(drawn) == said).sum())
        candidate.samples += count
        asked += count

    beam: list[Candidate] = [Candidate(())]
    for _ in range(people.features):
        grown = {
            tuple(sorted((*kept.features, place)))
            for kept in beam
            for place in range(people.features)
            if place not in kept.features
        }
        candidates = [Candidate(features) for features in sorted(grown)]
        beam = _best(candidates, sample)
        sure = [item for item in beam if _reaches(item, precision, sample)]
        for chosen in sorted(sure, key=lambda item: -people.coverage(row, item.features)):
            proof = Candidate(chosen.features)
            sample(proof, PROOF)
            if proof.precision >= precision:
                return Anchor(chosen.features, proof.precision, people.coverage(row, chosen.features), asked)
    raise ValueError(f"no set of features makes the model say {said} with a precision of {precision}")


def _best(candidates: list[Candidate], sample: Callable[[Candidate], None]) -> list[Candidate]:
    """The BEAM candidates of highest precision, as far as a few rounds of samples tell (KL-LUCB)."""
    for candidate in candidates:
        sample(candidate)
    for round_number in range(1, 40):
        level = _level(len(candidates), round_number)
        ranked = sorted(candidates, key=lambda item: -item.precision)
        best, rest = ranked[:BEAM], ranked[BEAM:]
        if not rest:
            return best
        weakest = min(best, key=lambda item: item.low(level))
        rival = max(rest, key=lambda item: item.high(level))
        if rival.high(level) - weakest.low(level) < 0.1:
            return best
        sample(weakest)
        sample(rival)
    return sorted(candidates, key=lambda item: -item.precision)[:BEAM]


def _reaches(candidate: Candidate, precision: float, sample: Callable[[Candidate], None]) -> bool:
    """Whether samples make it sure enough that a candidate's precision is that high."""
    for round_number in range(1, 40):
        level = _level(1, round_number)
        if candidate.low(level) >= precision:
            return True
        if candidate.high(level) < precision:
            return False
        sample(candidate)
    return False


def _level(candidates: int, round_number: int) -> float:
    """How far a divergence may go so that all bounds of all rounds hold but for RISK (Kaufmann and Kalyanakrishnan)."""
    exploration = np.log(405.5 * candidates * round_number**1.1 / RISK)
    return float(exploration + np.log(exploration))


def _bound(mean: float, level: float, direction: int) -> float:
    """The probability furthest from `mean` on one side whose Bernoulli divergence from it is at most `level`."""
    inside, outside = mean, 1.0 if direction > 0 else 0.0
    for _ in range(30):
        middle = (inside + outside) / 2
        if _divergence(mean, middle) > level:
            outside = middle
        else:
            inside = middle
    return inside


def _divergence(p: float, q: float) -> float:
    """Kullback-Leibler divergence of two Bernoulli distributions."""
    p, q = (min(max(value, 1e-9), 1 - 1e-9) for value in (p, q))
    return float(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
