"""Who earned more than 50,000 dollars in the 1994 census of the United States: a random forest, and why it says so of one
person.

The model is that of the public Alibi adult example: 12 features (fnlwgt and education-num are left out; education, marital
status, occupation and country in the coarser groups of groups.csv), medians for missing numbers and scaling, one-hot columns
for categories, a forest of 50 trees, everything from NumPy's seed 0. Of the shuffled rows the first 30,000 are for training,
one is left out as there, the rest is for the test. The explanation is an anchor: see anchors.py.

Settings (environment):
    DATA_URL   http(s) address of adult.data or adult.data.gz; default the copy beside this file
    TREES      trees of the forest, default 50
    EXPLAIN    number of the test row that is explained, default 0
    PRECISION  that the explanation must have, default 0.95

Data other than the census of 32,561 rows (by its MD5) is refused. Standard output is JSON lines: metrics train_accuracy,
accuracy, precision, recall, f1 (of the class above 50,000, on the test rows), anchor_precision and anchor_coverage, and an
event "explanation" in words.
"""

import csv
import gzip
import hashlib
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import anchors
import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.metrics import precision_recall_fscore_support
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

HERE = Path(__file__).parent
MD5 = "5d7c39d7b8804f071cdd1f2a7c460872"
"""Of adult.data as the UCI Machine Learning Repository has it (Becker and Kohavi, CC BY 4.0), unpacked."""

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
)  # fmt: skip
LEFT_OUT = ("fnlwgt", "education-num")
FEATURES = tuple(name for name in COLUMNS if name not in LEFT_OUT)
NUMBERS = ("age", "capital-gain", "capital-loss", "hours-per-week")
TRAINING_ROWS = 30_000
SEED = 0


def say(**fields: object) -> None:
    """One JSON line, at once."""
    print(json.dumps(fields), flush=True)


def read_data(url: str) -> list[list[str]]:
    """The rows of the census.

    Raises:
        SystemExit: it is not that census.
    """
    if url:
        with urllib.request.urlopen(url, timeout=60) as answer:
            data = answer.read()
    else:
        data = (HERE / "adult.data.gz").read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if found != MD5:
        raise SystemExit(f"{url or 'adult.data.gz'} is not the 1994 census: its MD5 is {found}, not {MD5}")
    return [row for row in csv.reader(data.decode().splitlines(), skipinitialspace=True) if row]


def read_groups(path: Path = HERE / "groups.csv") -> dict[tuple[str, str], str]:
    """Column and value to the coarser group."""
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["column"], row["value"]): row["group"] for row in csv.DictReader(file)}


def to_numbers(
    rows: list[list[str]], groups: dict[tuple[str, str], str]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], dict[int, list[str]]]:
    """Features as numbers, the class (1: above 50,000), and what the numbers of a category stand for.

    A category's numbers are the places of its values in alphabetical order.
    """
    features = np.empty((len(rows), len(FEATURES)))
    meanings: dict[int, list[str]] = {}
    for place, name in enumerate(FEATURES):
        values = [row[COLUMNS.index(name)] for row in rows]
        if name in NUMBERS:
            features[:, place] = np.array(values, float)
            continue
        grouped = [groups.get((name, value), value) for value in values]
        meanings[place] = sorted(set(grouped))
        number = {value: index for index, value in enumerate(meanings[place])}
        features[:, place] = [number[value] for value in grouped]
    return features, np.array([row[-1] == ">50K" for row in rows], int), meanings


def make_model(trees: int) -> Pipeline:
    numbers = [place for place, name in enumerate(FEATURES) if name in NUMBERS]
    categories = [place for place, name in enumerate(FEATURES) if name not in NUMBERS]
    number_steps = [("imputer", SimpleImputer(strategy="median")), ("scaler", StandardScaler())]
    category_steps = [
        ("imputer", SimpleImputer(strategy="median")),
        ("onehot", OneHotEncoder(handle_unknown="ignore")),
    ]
    columns = ColumnTransformer(
        [("numbers", Pipeline(number_steps), numbers), ("categories", Pipeline(category_steps), categories)]
    )
    return Pipeline([("columns", columns), ("forest", RandomForestClassifier(n_estimators=trees))])


def main() -> None:
    features, above, meanings = to_numbers(read_data(os.environ.get("DATA_URL", "")), read_groups())
    np.random.seed(SEED)
    shuffled = np.random.permutation(np.c_[features, above])
    features, above = shuffled[:, :-1], shuffled[:, -1].astype(int)
    train, test = slice(0, TRAINING_ROWS), slice(TRAINING_ROWS + 1, None)
    say(event="read", rows=len(features), training=TRAINING_ROWS, test=len(features[test]))
    np.random.seed(SEED)
    model = make_model(int(os.environ.get("TREES", "50"))).fit(features[train], above[train])
    guessed = model.predict(features[test])
    precision, recall, f1, _ = precision_recall_fscore_support(above[test], guessed, average="binary")
    say(metric="train_accuracy", value=round(float(model.score(features[train], above[train])), 6), epoch=0, step=0)
    say(metric="accuracy", value=round(float((guessed == above[test]).mean()), 6), epoch=0, step=0)
    say(metric="precision", value=round(float(precision), 6), epoch=0, step=0)
    say(metric="recall", value=round(float(recall), 6), epoch=0, step=0)
    say(metric="f1", value=round(float(f1), 6), epoch=0, step=0)
    row = features[test][int(os.environ.get("EXPLAIN", "0"))]
    numbers = {place: name for place, name in enumerate(FEATURES) if name in NUMBERS}
    people = anchors.People(features[train], frozenset(numbers), np.random.RandomState(SEED))
    wanted = float(os.environ.get("PRECISION", "0.95"))
    anchor = anchors.explain(model.predict, row, people, precision=wanted)
    said = [people.words(place, row[place], FEATURES[place], meanings.get(place)) for place in anchor.features]
    outcome = "above 50,000" if model.predict(row[None])[0] else "at most 50,000"
    say(event="explanation", prediction=outcome, because=said, samples=anchor.samples)
    say(metric="anchor_precision", value=round(anchor.precision, 4), epoch=0, step=0)
    say(metric="anchor_coverage", value=round(anchor.coverage, 4), epoch=0, step=0)


if __name__ == "__main__":
    main()
