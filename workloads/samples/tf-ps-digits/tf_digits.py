"""The network of mlp.py in TensorFlow, from the same first weights, for the TensorFlow samples: no Keras."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlp
import numpy as np
import tensorflow as tf

EPOCHS = int(os.environ.get("EPOCHS", "20"))
BATCH = int(os.environ.get("BATCH", "64"))
RATE = float(os.environ.get("RATE", "0.2"))
SEED = int(os.environ.get("SEED", "0"))


def make_variables() -> list[Any]:
    """The weights as variables; placed by the strategy in whose scope it is called."""
    return [tf.Variable(value, aggregation=tf.VariableAggregation.MEAN) for value in mlp.views(mlp.first_weights(SEED))]


def loss_of(weights: Sequence[Any], images: Any, digits: Any) -> Any:
    """Mean cross-entropy of a batch."""
    hidden = tf.nn.relu(tf.matmul(images, weights[0]) + weights[1])
    logits = tf.matmul(hidden, weights[2]) + weights[3]
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=digits, logits=logits))


def to_vector(weights: Sequence[Any]) -> Any:
    """The weights as one NumPy vector."""
    return np.concatenate([np.asarray(weight).ravel() for weight in weights])


class Events:
    """Event files as TensorBoard reads them."""

    def __init__(self, folder: str) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._writer = tf.summary.create_file_writer(folder)

    def scalar(self, name: str, value: float, step: int) -> None:
        # What tf.summary.scalar of TensorBoard's own package writes.
        plugin = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
        metadata = tf.compat.v1.SummaryMetadata(plugin_data=plugin)
        with self._writer.as_default():
            tf.summary.write(name, tf.constant(value), step=step, metadata=metadata)
        self._writer.flush()
