"""isthmus status: is the stack's cluster there, what runs on it, and in words why something does not."""

from typing import Any

from isthmus.cli.engine import kubeconfig_of
from isthmus.cli.output import print_json, print_rows
from isthmus.kube import objects
from isthmus.specs import labels
from isthmus.specs.errors import IsthmusError


def status(stack: str, *, json: bool = False) -> int:
    """Show a stack's cluster, nodes, what we deployed, and what is pending, and why.

    Parameters
    ----------
    stack
        Name of the stack, for example aws-sim.
    json
        Print everything as JSON.
    """
    from isthmus.kube import Cluster

    cluster = Cluster(kubeconfig_of(stack))
    local = _local(cluster.server)
    report: dict[str, Any] = {"stack": stack, "server": cluster.server, "processes": local["processes"]}
    try:
        report |= {"nodes": _nodes(cluster), "workloads": _workloads(cluster), "problems": _problems(cluster)}
    except IsthmusError as error:
        report |= {"nodes": [], "workloads": [], "problems": [error.message]}
    report["problems"] = [*local["problems"], *report["problems"]]
    if json:
        print_json(report)
        return 1 if report["problems"] else 0
    print(f"{stack}: {cluster.server}")
    print_rows(report["nodes"], ["node", "pool", "type", "runs", "ready", "gpus"], empty="no nodes")
    print_rows(report["workloads"], ["namespace", "kind", "name", "ready"], empty="nothing deployed")
    restarted = [item for item in report["processes"] if item["restarts"] or not item["running"]]
    if restarted:
        print_rows(restarted, ["process", "running", "restarts", "last_exit"])
    for problem in report["problems"]:
        print(f"  {problem}")
    if not report["problems"]:
        print("nothing is pending")
    return 1 if report["problems"] else 0


def _nodes(cluster: Any) -> list[dict[str, Any]]:
    rows = []
    for node in cluster.list("v1", "Node"):
        own = node["metadata"].get("labels") or {}
        taints = {taint["key"] for taint in node["spec"].get("taints") or []}
        rows.append(
            {
                "node": node["metadata"]["name"],
                "pool": own.get(labels.POOL, ""),
                "type": own.get("node.kubernetes.io/instance-type", ""),
                "runs": "simulated" if labels.SIMULATED_TAINT in taints else "containers",
                "ready": str(objects.holds(node, "Ready")).lower(),
                "gpus": int((node["status"].get("allocatable") or {}).get(labels.GPU_RESOURCE, 0)),
            }
        )
    return rows


def _workloads(cluster: Any) -> list[dict[str, Any]]:
    rows = []
    for kind in ("Deployment", "DaemonSet"):
        for item in cluster.list("apps/v1", kind, selector={labels.MANAGED_BY: labels.OWNER}):
            state = item.get("status") or {}
            wanted = item["spec"].get("replicas", 1) if kind == "Deployment" else state.get("desiredNumberScheduled", 0)
            have = state.get("readyReplicas" if kind == "Deployment" else "numberReady", 0)
            rows.append({**_name(item), "kind": kind, "ready": f"{have}/{wanted}"})
    return rows


def _name(item: dict[str, Any]) -> dict[str, str]:
    return {"namespace": item["metadata"].get("namespace", ""), "name": item["metadata"]["name"]}


def _problems(cluster: Any) -> list[str]:
    from isthmus.kube import explain

    return list(explain.cluster_problems(cluster))


def _local(server: str) -> dict[str, list[Any]]:
    """The processes of the local cluster behind this address, if it is one of ours, and what is wrong with them."""
    from isthmus.localcluster import runtime

    for kind in runtime.runtimes():
        if kind.available() is not None:
            continue
        for cluster in kind.list():
            if _endpoint(cluster) == server:
                return _supervised(cluster)
    return {"processes": [], "problems": []}


def _endpoint(cluster: Any) -> str:
    """Its address; "" for a cluster that is only half made and has none yet."""
    try:
        return str(cluster.endpoint)
    except (IsthmusError, ValueError):
        return ""


def _supervised(cluster: Any) -> dict[str, list[Any]]:
    now = cluster.status()
    processes = [
        {"process": item.name, "running": item.running, "restarts": item.restarts, "last_exit": item.last_exit}
        for item in now.processes
    ]
    if now.phase == "running":
        return {"processes": processes, "problems": []}
    said = f": {now.message}" if now.message else ""
    return {"processes": processes, "problems": [f"the local cluster {cluster.name} is {now.phase}{said}"]}
