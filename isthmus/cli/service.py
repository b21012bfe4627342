"""isthmus service: a running training service from the command line, and its database.

The service is ISTHMUS_SERVICE (its URL), the caller ISTHMUS_KEY (an API key). Verbs and words are those of the HTTP API.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from isthmus.cli.output import print_json, print_rows
from isthmus.specs.errors import InvalidSpec

if TYPE_CHECKING:
    from isthmus.service.client import Client
    from isthmus.service.mappings import AlgorithmMapping

app = App(name="service", help="Use a running training service; keep its database.")

Json = Annotated[bool, Parameter(negative="")]
Project = Annotated[str, Parameter(name=["--project", "-p"])]
Url = "http://127.0.0.1:8080"


@app.command
def me() -> None:
    """Who we are there, and which projects we belong to."""
    print_json(_client().me().model_dump(mode="json"))


@app.command
def submit(
    algorithm: str,
    *,
    project: Project,
    stack: Annotated[str, Parameter(name=["--stack", "-s"])],
    changes: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    version: int | None = None,
    priority: Literal["low", "normal", "high"] = "normal",
    simulate: str | None = None,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False,
    json: Json = False,
) -> int:
    """Queue a run of an algorithm. With --follow the exit code is 0 only when it succeeded.

    Parameters
    ----------
    algorithm
        Name of an algorithm of the project.
    project
        Name of the project.
    stack
        Where to run it.
    changes
        Parameters: --set epochs=5 --set lr=0.1.
    version
        Of the algorithm; by default the current one.
    priority
        Within the project.
    simulate
        Only schedule it, on simulated nodes, and let it take so long (90s, 2m).
    follow
        Wait for its end.
    json
        Print JSON.
    """
    from isthmus.runs.model import parse_duration
    from isthmus.service import schemas

    seconds = parse_duration(simulate) if simulate is not None else None
    body = schemas.NewRun(
        algorithm=algorithm, version=version, parameters=_values(changes), stack=stack, priority=priority,
        simulated_seconds=seconds,
    )  # fmt: skip
    client = _client()
    run = client.submit(project, body)
    return _follow(client, project, run.id, as_json=json) if follow else _show(run, as_json=json)


@app.command
def runs(
    *,
    project: Project,
    q: str | None = None,
    state: str | None = None,
    metric: str | None = None,
    at_least: float | None = None,
    most: int = 50,
    json: Json = False,
) -> None:
    """List and search a project's runs, newest first.

    Parameters
    ----------
    project
        Name of the project.
    q
        Words of id, algorithm, user, stack or parameters: "digits epochs=5".
    state
        Queued, Running, Succeeded, ...
    metric
        Only runs that printed this metric.
    at_least
        Only runs whose last value of the metric is so high.
    most
        So many at most.
    json
        Print JSON.
    """
    import itertools

    found = _client().runs(project, q=q, state=state, metric=metric, at_least=at_least, limit=min(most, 500))
    rows = [run.model_dump(mode="json") for run in itertools.islice(found, most)]
    for row in rows:
        row["values"] = ", ".join(f"{name} {value:g}" for name, value in row["metrics"].items() if value is not None)
    columns = ["id", "algorithm", "version", "user", "stack", "state", "source", "created", "values", "reason"]
    print_rows(rows, columns, as_json=json, empty="no runs; isthmus service submit ALGORITHM -p PROJECT -s STACK")


@app.command
def show(run: str, *, project: Project) -> None:
    """Show one run.

    Parameters
    ----------
    run
        Its id.
    project
        Name of the project.
    """
    print_json(_client().run(project, run).model_dump(mode="json"))


@app.command
def follow(run: str, *, project: Project, json: Json = False) -> int:
    """Wait for a run's end; the exit code is 0 only when it succeeded.

    Parameters
    ----------
    run
        Its id.
    project
        Name of the project.
    json
        Print JSON.
    """
    return _follow(_client(), project, run, as_json=json)


@app.command
def cancel(run: str, *, project: Project, json: Json = False) -> int:
    """Cancel a run.

    Parameters
    ----------
    run
        Its id.
    project
        Name of the project.
    json
        Print JSON.
    """
    return _show(_client().cancel(project, run), as_json=json)


@app.command
def retry(run: str, *, project: Project, json: Json = False) -> int:
    """Queue a run that ended without success once more.

    Parameters
    ----------
    run
        Its id.
    project
        Name of the project.
    json
        Print JSON.
    """
    return _show(_client().retry(project, run), as_json=json)


@app.command
def replay(
    run: str, *, project: Project, stack: Annotated[str, Parameter(name=["--stack", "-s"])], json: Json = False
) -> int:
    """Queue the same run on another stack.

    Parameters
    ----------
    run
        Its id.
    project
        Name of the project.
    stack
        Where to.
    json
        Print JSON.
    """
    return _show(_client().replay(project, run, stack), as_json=json)


@app.command
def logs(
    run: str, *, project: Project, follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False
) -> None:
    """Print what a run's pods printed.

    Parameters
    ----------
    run
        Its id.
    project
        Name of the project.
    follow
        Until they end.
    """
    for line in _client().logs(project, run, follow=follow):
        print(line, flush=True)


@app.command
def metrics(run: str, *, project: Project, name: str | None = None, json: Json = False) -> None:
    """Print every number that a run printed.

    Parameters
    ----------
    run
        Its id.
    project
        Name of the project.
    name
        Only this metric.
    json
        Print JSON.
    """
    rows = [item.model_dump(mode="json") for item in _client().metrics(project, run, name)]
    print_rows(rows, ["name", "value", "epoch", "step", "role", "rank", "at"], as_json=json, empty="no metrics yet")


@app.command
def artefacts(run: str, *, project: Project, json: Json = False) -> None:
    """List the volumes that a run wrote to.

    Parameters
    ----------
    run
        Its id.
    project
        Name of the project.
    json
        Print JSON.
    """
    rows = [item.model_dump(mode="json") for item in _client().artefacts(project, run)]
    print_rows(rows, ["volume", "role", "path", "size", "present"], as_json=json, empty="it has no volumes")


@app.command
def compare(*run: str, project: Project, tolerance: float = 0.02, json: Json = False) -> int:
    """Compare runs. The exit code is 1 where a metric differs by more than the tolerance.

    Parameters
    ----------
    run
        Ids, two or more.
    project
        Name of the project.
    tolerance
        How far metrics may lie apart, relative to the largest.
    json
        Print JSON.
    """
    found = _client().compare(project, run, tolerance=tolerance)
    if json:
        print_json(found.model_dump(mode="json"))
    else:
        names = [item.id for item in found.runs]
        rows = [{"": item.name, **dict(zip(names, item.values, strict=True))} for item in found.differences]
        rows += [
            {"": item.name, **dict(zip(names, item.values, strict=True)), "within": item.within}
            for item in found.metrics
        ]
        print_rows(rows, ["", *names, "within"], empty="they do not differ, and printed no metrics")
        if found.mixed:
            print("measured and simulated runs side by side: their times are not of one kind")
    return 1 if any(item.within is False for item in found.metrics) else 0


@app.command
def algorithms(*, project: Project, json: Json = False) -> None:
    """List a project's algorithms.

    Parameters
    ----------
    project
        Name of the project.
    json
        Print JSON.
    """
    rows = [item.model_dump(mode="json") for item in _client().algorithms(project)]
    for row in rows:
        row["parameters"] = ", ".join(row["mapping"]["parameters"])
    columns = ["algorithm", "version", "parameters", "created_by", "created", "deprecated", "note"]
    print_rows(
        rows, columns, as_json=json, empty="no algorithms; isthmus service create-algorithm NAME FILE -p PROJECT"
    )


@app.command
def create_algorithm(name: str, file: Path, *, project: Project, note: str = "") -> None:
    """Add an algorithm (createAlgorithmMapping).

    Parameters
    ----------
    name
        Its name.
    file
        YAML with `parameters` and `workload`; see docs/service.md.
    project
        Name of the project.
    note
        What it is.
    """
    made = _client().create_algorithm_mapping(project, name, _mapping(file), note=note)
    print(f"algorithm {made.algorithm}, version {made.version}, digest {made.digest[:12]}")


@app.command
def update_algorithm(name: str, file: Path, *, project: Project, note: str = "") -> None:
    """Add a version of an algorithm and make it the current one (updateAlgorithmVersion).

    Parameters
    ----------
    name
        Its name.
    file
        YAML with `parameters` and `workload`.
    project
        Name of the project.
    note
        What changed.
    """
    made = _client().update_algorithm_version(project, name, _mapping(file), note=note)
    print(f"algorithm {made.algorithm}, version {made.version}, digest {made.digest[:12]}")


@app.command
def roll_back_algorithm(name: str, version: int, *, project: Project) -> None:
    """Make an earlier version of an algorithm the current one.

    Parameters
    ----------
    name
        Its name.
    version
        The version.
    project
        Name of the project.
    """
    made = _client().roll_back_algorithm(project, name, version)
    print(f"algorithm {made.algorithm}: version {made.version} is the current one")


@app.command
def deprecate_algorithm(name: str, *, project: Project, undo: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Take no new runs of an algorithm; what ran can be retried and replayed.

    Parameters
    ----------
    name
        Its name.
    project
        Name of the project.
    undo
        Take new runs again.
    """
    made = _client().set_deprecated(project, name, not undo)
    print(f"algorithm {made.algorithm}: {'deprecated' if made.deprecated else 'in use'}")


@app.command
def create_project(
    name: str, *, cloud: Annotated[tuple[str, ...], Parameter(negative="")] = (), maintainer: str | None = None
) -> None:
    """Add a project (administrators).

    Parameters
    ----------
    name
        Its name.
    cloud
        Where its data may be: aws, or aws/us-east-1. By default anywhere.
    maintainer
        User who is to be its first maintainer.
    """
    from isthmus.service import schemas

    client = _client()
    made = client.create_project(schemas.NewProject(name=name, clouds=list(cloud)))
    if maintainer:
        client.set_member(name, maintainer, "maintainer")
    print(f"project {made.name}")


@app.command
def create_user(name: str, *, issuer: str = "", subject: str = "") -> None:
    """Add a user and print an API key for them (administrators).

    Parameters
    ----------
    name
        Their name.
    issuer
        URL of their identity provider, where they have one.
    subject
        Who they are there.
    """
    from isthmus.service import schemas

    client = _client()
    client.create_user(schemas.NewUser(name=name, issuer=issuer, subject=subject))
    key = client.create_key(schemas.NewKey(label="first key"), user=name)
    print(f"API key of {name}, shown this once, good until {key.expires:%Y-%m-%d}: {key.key}")


@app.command
def set_member(user: str, role: Literal["viewer", "member", "maintainer"], *, project: Project) -> None:
    """Give a user a role in a project.

    Parameters
    ----------
    user
        Name of the user.
    role
        viewer reads, member runs, maintainer also changes algorithms and members.
    project
        Name of the project.
    """
    made = _client().set_member(project, user, role)
    print(f"{made.user} is {made.role} of {project}")


@app.command
def backup(file: Path, *, database: str | None = None) -> None:
    """Write the service's whole database to a file, while it runs.

    Parameters
    ----------
    file
        A new file, for example service.jsonl.gz.
    database
        As of isthmus serve.
    """
    from isthmus.cli.serve import open_database
    from isthmus.service.backup import back_up

    opened = open_database(database)
    opened.check_schema()
    print(f"{file}: {back_up(opened, file)} rows of {opened.shown}")


@app.command
def restore(file: Path, *, database: str | None = None) -> None:
    """Put a back-up into an empty database, SQLite or PostgreSQL.

    Parameters
    ----------
    file
        What `isthmus service backup` wrote.
    database
        As of isthmus serve.
    """
    from isthmus.cli.serve import open_database
    from isthmus.service.backup import restore as restored

    opened = open_database(database)
    print(f"{opened.shown}: {restored(opened, file)} rows from {file}")


@app.command
def migrate(revision: str = "head", *, database: str | None = None) -> None:
    """Bring the database's tables to a revision, up or down.

    Parameters
    ----------
    revision
        head (what this isthmus needs), base (no tables), or one between.
    database
        As of isthmus serve.
    """
    from isthmus.cli.serve import open_database

    opened = open_database(database)
    before = opened.revision()
    opened.migrate(revision)
    print(f"{opened.shown}: {before or 'no tables'} -> {opened.revision() or 'no tables'}")


def _client() -> "Client":
    from isthmus.service.client import Client

    key = os.environ.get("ISTHMUS_KEY", "")
    if not key:
        raise InvalidSpec("no API key is set", subject="ISTHMUS_KEY", remedy="export ISTHMUS_KEY=isk_...")
    return Client(os.environ.get("ISTHMUS_SERVICE", Url), key)


def _show(run: Any, *, as_json: bool) -> int:
    if as_json:
        print_json(run.model_dump(mode="json"))
    else:
        said = f": {run.reason}" if run.reason else ""
        print(f"run {run.id} ({run.algorithm} version {run.version} on {run.stack}): {run.state}{said}")
        print(f"next: isthmus service follow {run.id} -p {run.project}")
    return 0


def _follow(client: "Client", project: str, run: str, *, as_json: bool) -> int:
    from isthmus.cli.output import Progress

    progress = Progress(f"run {run}", every=5.0)
    while True:
        found = client.run(project, run)
        shown = ", ".join(f"{name} {value:g}" for name, value in found.metrics.items() if value is not None)
        progress.update(", ".join(filter(None, [found.state, *found.waiting[:1], shown])))
        if found.finished is not None:
            break
        client.pause()
    progress.done(found.state)
    _show(found, as_json=as_json)
    return 0 if found.state == "Succeeded" else 1


def _values(changes: tuple[str, ...]) -> dict[str, Any]:
    """Parameters as they are typed: true, 5, 0.1 are no texts; quote one that should be."""
    import yaml

    values = {}
    for text in changes:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise InvalidSpec(f"--set takes parameter=value, not {text!r}", subject="--set", remedy="--set epochs=5")
        try:
            parsed = yaml.safe_load(value)
        except yaml.YAMLError:
            parsed = value
        values[key.strip()] = parsed if isinstance(parsed, bool | int | float | str) else value
    return values


def _mapping(file: Path) -> "AlgorithmMapping":
    import yaml
    from pydantic import ValidationError

    from isthmus.service.mappings import AlgorithmMapping

    try:
        return AlgorithmMapping.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        raise InvalidSpec(f"{file} is no mapping: {error}", subject=str(file), remedy="see docs/service.md") from error
