"""From an API key to compared runs, and the same run on another cloud: what a data scientist types.

    ISTHMUS_KEY=isk_... python first_runs.py PROJECT STACK [OTHER-STACK]

The service is ISTHMUS_SERVICE, by default http://127.0.0.1:8080; the project has the algorithm `digits` (docs/service.md).
"""

import os
import sys

from isthmus.service.client import Client
from isthmus.service.schemas import NewRun

project, stack, *others = sys.argv[1:]
service = Client(os.environ.get("ISTHMUS_SERVICE", "http://127.0.0.1:8080"), os.environ["ISTHMUS_KEY"])
print("I am", service.me().name)

runs = [
    service.submit(project, NewRun(algorithm="digits", parameters={"epochs": epochs}, stack=stack))
    for epochs in (5, 20)
]
ended = [service.wait(project, run.id) for run in runs]
for run in ended:
    print(run.id, run.parameters["epochs"], "epochs:", run.state, run.reason, run.metrics)

best = max(ended, key=lambda run: run.metrics.get("accuracy") or 0.0)
print("accuracy by epoch:", [metric.value for metric in service.metrics(project, best.id, "accuracy")])
for item in service.compare(project, [run.id for run in ended]).differences:
    print("differs:", item.name, item.values)

for other in others:
    replayed = service.wait(project, service.replay(project, best.id, other).id)
    print(replayed.id, "on", other, replayed.state, replayed.reason, replayed.metrics)
    for metric in service.compare(project, [best.id, replayed.id], tolerance=0.02).metrics:
        print(metric.name, metric.values, "agree" if metric.within else "DIFFER")
