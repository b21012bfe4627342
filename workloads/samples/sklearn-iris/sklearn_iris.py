"""Train a classifier of iris flowers with scikit-learn, from data on one volume to a model on another.

A logistic regression on standardised measurements. A fifth of the 150 flowers, of each kind as many, is kept for the test.

Arguments:
    --data_path    CSV file with a header of its own (150 rows: four measurements in cm, the kind as 0 to 2); where there
                   is none, the one that comes with scikit-learn is put there first
    --model_path   folder that the model is written to, as model.joblib

Settings (environment):
    SEED   of the choice of test flowers, default 0

Standard output is JSON lines: `{"metric": "accuracy", "value"}` on the test flowers, read back from the written model, and
"event" lines that tell what was read and written.
"""

import argparse
import json
import os
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def say(**fields: object) -> None:
    """One JSON line, at once."""
    print(json.dumps(fields), flush=True)


def read(path: Path) -> tuple[Any, Any]:
    """Measurements and kinds."""
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    return table[:, :4], table[:, 4].astype(int)


def provide(path: Path) -> None:
    """Put scikit-learn's own data where there is none."""
    if not path.exists():
        source = files("sklearn.datasets").joinpath("data", "iris.csv")
        half = path.with_name(path.name + ".half")
        with source.open("rb") as given, half.open("wb") as written:
            shutil.copyfileobj(given, written)
        half.replace(path)
        say(event="data-provided", path=str(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, required=True)
    parser.add_argument("--model_path", type=Path, required=True)
    asked = parser.parse_args()
    provide(asked.data_path)
    measurements, kinds = read(asked.data_path)
    say(event="read", path=str(asked.data_path), flowers=len(kinds))
    seed = int(os.environ.get("SEED", "0"))
    train_x, test_x, train_y, test_y = train_test_split(
        measurements, kinds, test_size=0.2, stratify=kinds, random_state=seed
    )
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(train_x, train_y)
    target = asked.model_path / "model.joblib"
    half = target.with_suffix(".half")
    joblib.dump(model, half)
    half.replace(target)
    say(event="written", path=str(target))
    value = float(joblib.load(target).score(test_x, test_y))
    say(metric="accuracy", value=round(value, 4), epoch=0, step=len(train_y))


if __name__ == "__main__":
    main()
