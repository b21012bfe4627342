"""Train a small network on the scikit-learn digits with two TensorFlow workers and nobody else.

MultiWorkerMirroredStrategy: every worker has the weights, takes its part of every batch, and the gradients are averaged over
all (all-reduce over gRPC). There is no Chief: worker 0 acts as one, which means that it writes the event files and reports.
The training operator sets TF_CONFIG.

Settings (environment):
    EPOCHS   passes over the training data, default 20
    BATCH    images per step of all workers together, default 64
    RATE     step of the gradient descent, default 0.2
    SEED     of the weights and of the order of the images, default 0
    DATA     digits.csv.gz of scikit-learn, default beside this file
    EVENTS   folder for worker 0's event files (TensorBoard), default /tmp/events

Standard output is JSON lines. Worker 0 writes `{"metric": "loss", "value", "epoch", "step"}` (the mean over all workers)
after every epoch and at the end accuracy and steps_per_second.
"""

import json
import os
import time
from typing import Any

import digits
import mlp
import tensorflow as tf
from digits import say
from tf_digits import BATCH, EPOCHS, RATE, SEED, Events, loss_of, make_variables, to_vector


def main() -> None:
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    index = int(task["index"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # first of all: it starts the servers
    workers = strategy.num_replicas_in_sync
    say(event="started", role=task["type"], index=index, workers=workers, tensorflow=tf.__version__)
    images, labels, test_images, test_labels = digits.train_and_test()
    with strategy.scope():
        weights = make_variables()

    @tf.function  # type: ignore[untyped-decorator]
    def one_step(batch: Any, of_batch: Any) -> Any:
        def on_worker(own: Any, of_own: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(weights, own, of_own)
            for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(RATE * gradient)  # averaged over the workers (VariableAggregation.MEAN)
            return loss

        each = strategy.run(on_worker, args=(batch, of_batch))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, each, axis=None)

    events = Events(os.environ.get("EVENTS", "/tmp/events")) if index == 0 else None
    step, begun = 0, time.monotonic()
    for epoch in range(1, EPOCHS + 1):
        total, steps = 0.0, 0
        for batch in digits.batches(len(images), BATCH, epoch, SEED):
            own = digits.part(batch, index, workers)
            total += float(one_step(tf.constant(images[own]), tf.constant(labels[own])))
            steps += 1
        step += steps
        if events:
            say(metric="loss", value=round(total / steps, 6), epoch=epoch, step=step)
            events.scalar("loss", total / steps, step)
    seconds = time.monotonic() - begun
    if events:
        accuracy = mlp.accuracy(to_vector([weight.numpy() for weight in weights]), test_images, test_labels)
        events.scalar("accuracy", accuracy, step)
        say(metric="accuracy", value=round(accuracy, 4), epoch=EPOCHS, step=step)
        say(metric="steps_per_second", value=round(step / seconds, 2), epoch=EPOCHS, step=step)


if __name__ == "__main__":
    main()
