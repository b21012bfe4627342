"""Why something is pending, from recorded answers of a scheduler, a kubelet and controllers."""

from typing import Any

import pytest

from isthmus.kube import explain
from isthmus.kube.explain import Facts


def node(
    name: str, gpus: int = 0, labels: dict[str, str] | None = None, taints: list[Any] | None = None
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": taints or []},
        "status": {
            "allocatable": {"cpu": "2", "memory": "8Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {}),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    name: str = "worker-0", *, gpus: int = 0, cpu: str = "1", on: str = "", message: str = "", **more: Any
) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    spec: dict[str, Any] = {
        "containers": [{"name": "pytorch", "resources": {"requests": {"cpu": cpu}, "limits": limits}}]
    }
    status: dict[str, Any] = {"phase": "Running" if on else "Pending"}
    if on:
        spec["nodeName"] = on
    elif message:
        status["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        ]
    spec.update(more.get("spec", {}))
    status.update(more.get("status", {}))
    return {"metadata": {"name": name, "namespace": "runs"}, "spec": spec, "status": status}


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    entry = {
        "name": "pytorch",
        "image": "docker.io/isthmus/torch:1",
        "state": {"waiting": {"reason": reason, "message": message}},
    }
    return {"phase": "Pending", "containerStatuses": [entry | more]}


def test_a_pod_that_no_node_could_ever_hold_names_the_largest() -> None:
    one = pod(
        gpus=8, message="0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available"
    )
    facts = Facts(pods=[one], nodes=[node("small", 1), node("large", 4)])
    assert explain.explain(facts) == ["pod runs/worker-0: no node has 8 nvidia.com/gpu: the largest (large) has 4"]


def test_cards_in_use_name_who_has_them() -> None:
    one = pod(gpus=2, message="0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    holder = pod("other", gpus=3, on="n")
    facts = Facts(pods=[one], nodes=[node("n", 4)], placed=[holder])
    assert explain.explain(facts) == [
        "pod runs/worker-0: no node has 2 nvidia.com/gpu free: n has the most, 1 of 4; in use by runs/other"
    ]


def test_pods_that_are_done_hold_nothing() -> None:
    done = pod("done", gpus=4, on="n", status={"phase": "Succeeded"})
    assert explain.free([node("n", 4)], [done], "nvidia.com/gpu") == {"n": 4}


def test_a_cluster_without_cards() -> None:
    one = pod(gpus=1, message="0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    assert "no node has any nvidia.com/gpu" in explain.explain(Facts(pods=[one], nodes=[node("n")]))[0]


def test_cpu_is_told_with_amounts() -> None:
    one = pod(cpu="16", message="0/1 nodes are available: 1 Insufficient cpu.")
    assert "no node has 16 cpu: the largest (n) has 2" in explain.explain(Facts(pods=[one], nodes=[node("n")]))[0]


def test_a_selector_names_the_label_and_what_there_is() -> None:
    message = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    one = pod(message=message, spec={"nodeSelector": {"isthmus.dev/gpu-model": "A100"}})
    [sentence] = explain.explain(Facts(pods=[one], nodes=[node("n", labels={"isthmus.dev/gpu-model": "T4"})]))
    assert sentence.endswith(
        "no node with isthmus.dev/gpu-model = A100, which is asked for: nodes have isthmus.dev/gpu-model = T4"
    )


def test_a_taint_names_its_nodes() -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    one = pod(message="0/1 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}.")
    [sentence] = explain.explain(Facts(pods=[one], nodes=[node("n", taints=[taint])]))
    assert sentence.endswith("the taint nvidia.com/gpu=present of n is not tolerated")


def test_an_unknown_message_is_passed_on() -> None:
    one = pod(message="0/1 nodes are available: 1 node(s) were out of luck. preemption: none")
    [sentence] = explain.explain(Facts(pods=[one], nodes=[node("n")]))
    assert sentence == "pod runs/worker-0: not scheduled: 0/1 nodes are available: 1 node(s) were out of luck"


@pytest.mark.parametrize(
    ("claims", "classes", "words"),
    [
        ([], [], "volume claim ckpt does not exist"),
        ([{"storageClassName": "gp3"}], [], "there is no storage class gp3"),
        ([{}], [{"metadata": {"name": "a"}}], "names no storage class and the cluster has no default one"),
        (
            [{"storageClassName": "gp3"}],
            [{"metadata": {"name": "gp3"}, "provisioner": "ebs.csi.aws.com"}],
            "waiting for the provisioner ebs.csi.aws.com",
        ),
    ],
)
def test_a_claim_says_why_it_is_not_bound(claims: list[Any], classes: list[Any], words: str) -> None:
    one = pod(
        message="0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
        spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "ckpt"}}]},
    )
    held = [
        {"metadata": {"name": "ckpt", "namespace": "runs"}, "spec": spec, "status": {"phase": "Pending"}}
        for spec in claims
    ]
    assert words in explain.explain(Facts(pods=[one], nodes=[node("n")], claims=held, classes=classes))[0]


def test_an_image_that_cannot_be_had_is_named_with_the_cause() -> None:
    one = pod(on="n", status=waiting("ImagePullBackOff", "Back-off pulling image"))
    event = {
        "type": "Warning",
        "reason": "Failed",
        "message": "Failed to pull image: connection refused",
        "involvedObject": {"kind": "Pod", "name": "worker-0", "namespace": "runs"},
    }
    [sentence] = explain.explain(Facts(pods=[one], events=[event]))
    assert sentence == (
        "pod runs/worker-0: image docker.io/isthmus/torch:1 cannot be had (ImagePullBackOff):"
        " Failed to pull image: connection refused"
    )


def test_a_container_that_keeps_ending_tells_its_exit_code() -> None:
    status = waiting("CrashLoopBackOff", restartCount=3, lastState={"terminated": {"exitCode": 137}})
    [sentence] = explain.explain(Facts(pods=[pod(on="n", status=status)]))
    assert "keeps ending (exit code 137, 3 restarts)" in sentence


def test_an_init_container_is_waited_for() -> None:
    status = {
        "phase": "Pending",
        "initContainerStatuses": [{"name": "init-pytorch", "ready": False, "started": True, "state": {"running": {}}}],
        "containerStatuses": [{"name": "pytorch", "state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    [sentence] = explain.explain(Facts(pods=[pod(on="n", status=status)]))
    assert sentence == "pod runs/worker-0: waiting for init container init-pytorch to end"


def test_pods_that_wait_for_the_same_make_one_sentence() -> None:
    pods = [
        pod(f"worker-{i}", gpus=1, message="0/1 nodes are available: 1 Insufficient nvidia.com/gpu.") for i in range(5)
    ]
    [sentence] = explain.explain(Facts(pods=pods, nodes=[node("n")]))
    assert sentence.startswith("5 pods (runs/worker-0, runs/worker-1, runs/worker-2 and 2 more): no node has any")


def test_a_quota_is_told_in_words_until_pods_come() -> None:
    involved = {"kind": "PyTorchJob", "name": "job", "namespace": "runs"}
    refused = {
        "type": "Warning",
        "reason": "FailedCreatePod",
        "lastTimestamp": "2026-11-30T12:00:00Z",
        "message": 'Error creating: pods "x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1,'
        " used: requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=4",
        "involvedObject": involved,
    }
    [sentence] = explain.explain(Facts(events=[refused]))
    assert sentence == (
        "PyTorchJob runs/job may not create its pods: quota gpus allows requests.nvidia.com/gpu=4,"
        " in use requests.nvidia.com/gpu=4, asked requests.nvidia.com/gpu=1"
    )
    created = {
        "type": "Normal",
        "reason": "SuccessfulCreatePod",
        "lastTimestamp": "2026-11-30T12:00:09Z",
        "involvedObject": involved,
    }
    assert explain.explain(Facts(events=[refused, created])) == []


def test_running_and_finished_pods_need_no_words() -> None:
    running = pod("r", on="n", status={"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]})
    done = pod("d", on="n", status={"phase": "Succeeded"})
    leaving = pod("l")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
    assert explain.explain(Facts(pods=[running, done, leaving])) == []


def test_nodes_controllers_and_apis_are_looked_at() -> None:
    sick = node("n")
    sick["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "message": "container runtime is down"},
        {"type": "DiskPressure", "status": "True", "message": "disk is full"},
    ]
    assert explain.node_problems([sick]) == [
        "node n is not ready: container runtime is down",
        "node n has DiskPressure: disk is full",
    ]
    assert explain.node_problems([]) == ["the cluster has no node yet"]
    daemons = {
        "kind": "DaemonSet",
        "metadata": {"name": "d", "namespace": "k"},
        "status": {"desiredNumberScheduled": 2, "numberAvailable": 1},
    }
    assert explain.controller_problems([daemons]) == ["DaemonSet k/d has 1 of 2 pods available"]
    service = {
        "metadata": {"name": "v1.x"},
        "status": {"conditions": [{"type": "Available", "status": "False", "message": "no endpoints"}]},
    }
    assert explain.api_problems([service]) == ["API v1.x is not available: no endpoints"]


@pytest.mark.parametrize(
    ("offered", "told"),
    [
        ({}, True),
        ({"nvidia.com/gpu": "0", "cpu": "4"}, True),
        ({"nvidia.com/gpu": "4"}, False),
        ({"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "8"}, False),
        ({"nvidia.com/mig-1g.5gb": "2"}, False),
    ],
)
def test_a_gpu_node_without_cards_is_told(offered: dict[str, str], told: bool) -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": offered}
    node = {"metadata": {"name": "n", "labels": {"isthmus.dev/gpu-model": "T4"}}, "status": ready}
    found = explain.node_problems([node])
    assert [("advertises none" in problem) for problem in found] == ([True] if told else [])
    del node["metadata"]["labels"]
    assert explain.node_problems([node]) == []


def test_a_long_list_is_counted() -> None:
    pods = [pod(f"p{i}", on=f"n{i}", status={"phase": "Pending"}) for i in range(30)]
    sentences = explain.explain(Facts(pods=pods))
    assert len(sentences) == explain.MOST + 1
    assert sentences[-1] == "and 18 more"


def test_a09_pods_the_kubelet_refused_are_one_problem_for_each_owner() -> None:
    """kubernetes/kubernetes#108152: a Deployment makes more of them without end."""
    words = "Pod was rejected: Allocate failed due to requested number of devices unavailable"
    refused = [
        {
            "metadata": {
                "name": f"web-{index}",
                "namespace": "a",
                "ownerReferences": [{"uid": "one", "kind": "ReplicaSet"}],
            },
            "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": words},
        }
        for index in range(200)
    ]
    alone = {"metadata": {"name": "alone", "namespace": "a"}, "status": {"phase": "Failed", "message": words}}
    failed = {"metadata": {"name": "ended", "namespace": "a"}, "status": {"phase": "Failed", "message": "exit code 1"}}
    said = explain.explain(explain.Facts(pods=[*refused, alone, failed]))
    assert len(said) == 2 and said[0].startswith("200 pods") and "pod a/alone" in said[1]
    assert all("refused by the kubelet" in sentence and "devices unavailable" in sentence for sentence in said)
