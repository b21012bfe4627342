"""Train a small network on the scikit-learn digits with TensorFlow's ParameterServerStrategy.

One program for every role of a TFJob; the training operator says in TF_CONFIG which it is. PS pods hold the weights, shared
out among them. Worker pods compute steps. The Chief hands the steps out, each to whichever worker is free: so workers do not
wait for each other, and their steps may come upon weights that others have moved on meanwhile (asynchronous). The Evaluator
tests every epoch's weights, which it gets from the Chief over HTTP, since a volume belongs to one role. A worker that is lost
is left out, and gets steps again when it is back. The job is done when the Chief is.

Settings (environment):
    EPOCHS    passes over the training data, default 20
    BATCH     images per step, default 64
    RATE      step of the gradient descent, default 0.2
    SEED      of the weights and of the order of the images, default 0
    DATA      digits.csv.gz of scikit-learn, default beside this file
    EVENTS    folder for the Chief's event files (TensorBoard), default /events
    TIMEOUT   seconds the Evaluator waits for the Chief, and the Chief for the Evaluator's last word; default 120

Standard output is JSON lines. The Chief writes `{"metric": "loss", "value", "epoch", "step"}` after every epoch and at the
end accuracy and steps_per_second, the Evaluator eval_accuracy after every epoch that it sees.
"""

import http.server
import io
import json
import os
import threading
import time
import urllib.request
from typing import Any

import digits
import mlp
import numpy as np
import tensorflow as tf
from digits import say
from tf_digits import BATCH, EPOCHS, RATE, SEED, Events, loss_of, make_variables, to_vector

TIMEOUT = float(os.environ.get("TIMEOUT", "120"))
BOARD_PORT = 2300
"""Where the Chief shows the newest weights."""


class Board:
    """The newest weights, for whoever asks."""

    def __init__(self) -> None:
        self.newest = b""
        self.final = False
        self.last_seen = threading.Event()
        """Set once the last epoch's weights were fetched."""
        board = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                final, data = board.final, board.newest
                self.send_response(200 if data else 503)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                if final:
                    board.last_seen.set()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("", BOARD_PORT), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def show(self, weights: Any, epoch: int, step: int) -> None:
        """Put up an epoch's weights."""
        data = io.BytesIO()
        np.savez(data, weights=weights, progress=np.array([epoch, step]))
        self.newest = data.getvalue()
        self.final = epoch == EPOCHS


def coordinate(resolver: Any) -> None:
    """The Chief's life."""
    images, labels, test_images, test_labels = digits.train_and_test()
    strategy = tf.distribute.ParameterServerStrategy(resolver)  # whole variables, in turn on each server
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = make_variables()
    events, board = Events(os.environ.get("EVENTS", "/events")), Board()

    @tf.function  # type: ignore[untyped-decorator]
    def one_step(batch: Any, of_batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(weights, batch, of_batch)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(RATE * gradient)
        return loss

    step, begun = 0, time.monotonic()
    for epoch in range(1, EPOCHS + 1):
        pending = [
            coordinator.schedule(one_step, args=(tf.constant(images[batch]), tf.constant(labels[batch])))
            for batch in digits.batches(len(images), BATCH, epoch, SEED)
        ]
        coordinator.join()
        step += len(pending)
        loss = float(np.mean([item.fetch() for item in pending]))
        say(metric="loss", value=round(loss, 6), epoch=epoch, step=step)
        events.scalar("loss", loss, step)
        board.show(to_vector([weight.read_value() for weight in weights]), epoch, step)
    seconds = time.monotonic() - begun
    accuracy = mlp.accuracy(to_vector([weight.read_value() for weight in weights]), test_images, test_labels)
    events.scalar("accuracy", accuracy, step)
    say(metric="accuracy", value=round(accuracy, 4), epoch=EPOCHS, step=step)
    say(metric="steps_per_second", value=round(step / seconds, 2), epoch=EPOCHS, step=step)
    if not board.last_seen.wait(TIMEOUT):
        say(event="evaluator-missing", seconds=TIMEOUT)


def evaluate(chief: str) -> None:
    """The Evaluator's life."""
    _, _, test_images, test_labels = digits.train_and_test()
    address = f"http://{chief.rpartition(':')[0]}:{BOARD_PORT}/"
    done, heard = 0, time.monotonic()
    while done < EPOCHS:
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                kept = np.load(io.BytesIO(answer.read()))
        except OSError:  # no weights yet, or no Chief
            if time.monotonic() - heard > TIMEOUT:
                raise SystemExit(f"the Chief at {address} has shown no weights for {TIMEOUT:.0f} s") from None
            time.sleep(0.5)
            continue
        heard = time.monotonic()
        epoch, step = (int(number) for number in kept["progress"])
        if epoch > done:
            value = mlp.accuracy(kept["weights"], test_images, test_labels)
            say(metric="eval_accuracy", value=round(value, 4), epoch=epoch, step=step)
            done = epoch
        time.sleep(0.2)


def main() -> None:
    config = json.loads(os.environ["TF_CONFIG"])
    role, index = config["task"]["type"], config["task"]["index"]
    say(event="started", role=role, index=index, tensorflow=tf.__version__)
    if role == "evaluator":
        evaluate(config["cluster"]["chief"][0])
        return
    # The operator names the Evaluator in everybody's cluster (v1.9.3). It is no server: who counts it in waits for it for ever.
    served = {name: hosts for name, hosts in config["cluster"].items() if name != "evaluator"}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(served), task_type=role, task_id=index, rpc_layer="grpc"
    )
    if role in ("ps", "worker"):
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=role, task_index=index, protocol="grpc", start=True
        )
        server.join()  # until the operator ends it
        return
    coordinate(resolver)


if __name__ == "__main__":
    main()
