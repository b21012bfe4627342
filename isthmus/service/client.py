"""The service from Python, typed: the same documents as the API has, errors as the ones isthmus has everywhere.

    from isthmus.service.client import Client
    service = Client("http://127.0.0.1:8080", key)
    run = service.submit("vision", NewRun(algorithm="digits", parameters={"epochs": 5}, stack="aws-sim"))
    print(service.wait("vision", run.id).metrics["accuracy"])

A request that was not answered is sent again where that is safe: reading always, submitting because the client gives every
request for a run an idempotency key. It waits as long as Retry-After says, and gives up in the end.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import httpx2
from pydantic import BaseModel, TypeAdapter

from isthmus.service import model, schemas
from isthmus.service.mappings import AlgorithmMapping
from isthmus.service.problems import STATUS, TYPE
from isthmus.specs.errors import IsthmusError, NotReady

T = TypeVar("T")

SECONDS = 30.0
ATTEMPTS = 5
LONGEST_PAUSE = 30.0
POLL_SECONDS = 2.0

_KINDS = {TYPE + name: kind for kind, (_, name) in STATUS.items()}


class Client:
    """One service and one caller. Safe to share between threads."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        http: httpx2.Client | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """
        Args:
            url: of the service, without /v1.
            key: an API key, or a token of the service's identity provider.
            http, sleep: for tests.
        """
        self._http = http or httpx2.Client(base_url=url, timeout=SECONDS)
        self._headers = {"Authorization": f"Bearer {key}"}
        self._sleep = sleep

    def me(self) -> schemas.Me:
        """Who we are, and where we belong."""
        return self._get("/v1/me", schemas.Me)

    def api_keys(self) -> list[schemas.Key]:
        """Our API keys."""
        return self._get("/v1/me/keys", list[schemas.Key])

    def create_key(self, body: schemas.NewKey, *, user: str | None = None) -> schemas.SecretKey:
        """Another API key: ours, or (administrators) a user's."""
        return self._send("POST", f"/v1/users/{user}/keys" if user else "/v1/me/keys", schemas.SecretKey, body)

    def revoke_key(self, identity: str) -> None:
        """Revoke one of our keys."""
        self._send("DELETE", f"/v1/me/keys/{identity}", None)

    def stacks(self) -> list[schemas.Stack]:
        """The stacks that runs may be sent to."""
        return self._get("/v1/stacks", list[schemas.Stack])

    def users(self) -> list[schemas.User]:
        """Every user (administrators)."""
        return self._get("/v1/users", list[schemas.User])

    def create_user(self, body: schemas.NewUser) -> schemas.User:
        """Add a user (administrators)."""
        return self._send("POST", "/v1/users", schemas.User, body)

    def set_user_enabled(self, user: str, enabled: bool) -> schemas.User:
        """Disable or enable a user (administrators)."""
        return self._send("POST", f"/v1/users/{user}:{'enable' if enabled else 'disable'}", schemas.User)

    def projects(self) -> list[schemas.Project]:
        """The projects that we belong to."""
        return self._get("/v1/projects", list[schemas.Project])

    def create_project(self, body: schemas.NewProject) -> schemas.Project:
        """Add a project (administrators)."""
        return self._send("POST", "/v1/projects", schemas.Project, body)

    def change_project(self, project: str, body: schemas.ProjectChange) -> schemas.Project:
        """Change a project (administrators)."""
        return self._send("PATCH", f"/v1/projects/{project}", schemas.Project, body)

    def members(self, project: str) -> list[schemas.Member]:
        """Who belongs to a project."""
        return self._get(f"/v1/projects/{project}/members", list[schemas.Member])

    def set_member(self, project: str, user: str, role: schemas.RoleName) -> schemas.Member:
        """Give a user a role in a project."""
        body = schemas.RoleOf(role=role)
        return self._send("PUT", f"/v1/projects/{project}/members/{user}", schemas.Member, body)

    def remove_member(self, project: str, user: str) -> None:
        """Take a user out of a project."""
        self._send("DELETE", f"/v1/projects/{project}/members/{user}", None)

    def statistics(self, project: str, by: str = "algorithm") -> list[schemas.Statistic]:
        """Execution metrics of a project's runs."""
        return self._get(f"/v1/projects/{project}/statistics", list[schemas.Statistic], by=by)

    def budgets(self, project: str) -> list[schemas.Budget]:
        """A project's budgets and what was used of them."""
        return self._get(f"/v1/projects/{project}/budgets", list[schemas.Budget])

    def audit(self, project: str | None = None, *, limit: int = 100) -> list[schemas.AuditEntry]:
        """Who changed what, newest first."""
        path = f"/v1/projects/{project}/audit" if project else "/v1/audit"
        return self._get(path, list[schemas.AuditEntry], limit=limit)

    def algorithms(self, project: str) -> list[schemas.Version]:
        """A project's algorithms in their current versions."""
        return self._get(f"/v1/projects/{project}/algorithms", list[schemas.Version])

    def versions(self, project: str, algorithm: str) -> list[schemas.Version]:
        """Every version of an algorithm."""
        return self._get(f"/v1/projects/{project}/algorithms/{algorithm}/versions", list[schemas.Version])

    def algorithm(self, project: str, algorithm: str, version: int | None = None) -> schemas.Version:
        """An algorithm in a version, by default the current one."""
        path = f"/v1/projects/{project}/algorithms/{algorithm}"
        return self._get(path if version is None else f"{path}/versions/{version}", schemas.Version)

    def create_algorithm_mapping(
        self, project: str, name: str, mapping: AlgorithmMapping, *, note: str = ""
    ) -> schemas.Version:
        """Add an algorithm."""
        body = schemas.NewAlgorithm(name=name, mapping=mapping, note=note)
        return self._send("POST", f"/v1/projects/{project}/algorithms", schemas.Version, body)

    def update_algorithm_version(
        self, project: str, name: str, mapping: AlgorithmMapping, *, note: str = ""
    ) -> schemas.Version:
        """Add a version of an algorithm and make it the current one."""
        body = schemas.NewVersion(mapping=mapping, note=note)
        return self._send("POST", f"/v1/projects/{project}/algorithms/{name}/versions", schemas.Version, body)

    def roll_back_algorithm(self, project: str, name: str, version: int) -> schemas.Version:
        """Make an earlier version the current one."""
        body = schemas.RollBack(version=version)
        return self._send("POST", f"/v1/projects/{project}/algorithms/{name}:rollBack", schemas.Version, body)

    def set_deprecated(self, project: str, name: str, deprecated: bool) -> schemas.Version:
        """Deprecate an algorithm, or take that back."""
        verb = "deprecate" if deprecated else "restore"
        return self._send("POST", f"/v1/projects/{project}/algorithms/{name}:{verb}", schemas.Version)

    def submit(self, project: str, body: schemas.NewRun, *, key: str | None = None) -> schemas.Run:
        """Queue a run."""
        return self._send("POST", f"/v1/projects/{project}/runs", schemas.Run, body, key=key or _new_key())

    def runs(self, project: str, *, pages: int | None = None, **wanted: Any) -> Iterator[schemas.Run]:
        """A project's runs, newest first, page after page; `wanted` as the query of the API."""
        cursor: str | None = None
        while pages is None or pages > 0:
            page = self._get(f"/v1/projects/{project}/runs", schemas.Runs, cursor=cursor, **wanted)
            yield from page.runs
            cursor, pages = page.next, None if pages is None else pages - 1
            if cursor is None:
                return

    def run(self, project: str, run: str) -> schemas.Run:
        """One run."""
        return self._get(f"/v1/projects/{project}/runs/{run}", schemas.Run)

    def wait(self, project: str, run: str, *, seconds: float = 24 * 3600.0) -> schemas.Run:
        """The run when it has ended. NotReady when that takes longer."""
        end = time.monotonic() + seconds
        while True:
            found = self.run(project, run)
            if model.RunState(found.state).final:
                return found
            if time.monotonic() > end:
                raise NotReady(
                    f"run {run} is still {found.state} after {seconds:g} s", subject=f"run {run}", remedy="wait longer"
                )
            self.pause()

    def pause(self) -> None:
        """Wait a moment before asking for the same again."""
        self._sleep(POLL_SECONDS)

    def metrics(self, project: str, run: str, name: str | None = None) -> list[schemas.Metric]:
        """Every number that a run printed."""
        return self._get(f"/v1/projects/{project}/runs/{run}/metrics", list[schemas.Metric], name=name)

    def artefacts(self, project: str, run: str) -> list[schemas.Artefact]:
        """The volumes that a run wrote to."""
        return self._get(f"/v1/projects/{project}/runs/{run}/artefacts", list[schemas.Artefact])

    def logs(
        self, project: str, run: str, *, role: str | None = None, rank: int | None = None, follow: bool = False
    ) -> Iterator[str]:
        """What a run's pods printed, line by line; with `follow` until they end."""
        query = _given(role=role, rank=rank, follow=str(follow).lower())
        with self._http.stream(
            "GET", f"/v1/projects/{project}/runs/{run}/logs", params=query, headers=self._headers,
            timeout=httpx2.Timeout(SECONDS, read=None if follow else SECONDS),
        ) as answer:  # fmt: skip
            if answer.status_code >= 400:
                answer.read()
                raise _error(answer)
            yield from answer.iter_lines()

    def cancel(self, project: str, run: str) -> schemas.Run:
        """Cancel a run."""
        return self._send("POST", f"/v1/projects/{project}/runs/{run}:cancel", schemas.Run, key=_new_key())

    def retry(self, project: str, run: str) -> schemas.Run:
        """Queue a run that ended without success once more."""
        return self._send("POST", f"/v1/projects/{project}/runs/{run}:retry", schemas.Run, key=_new_key())

    def replay(self, project: str, run: str, stack: str) -> schemas.Run:
        """Queue a run again on another stack."""
        body = schemas.Replay(stack=stack)
        return self._send("POST", f"/v1/projects/{project}/runs/{run}:replay", schemas.Run, body, key=_new_key())

    def compare(self, project: str, runs: Sequence[str], *, tolerance: float = 0.02) -> schemas.Comparison:
        """Runs side by side."""
        return self._get(
            f"/v1/projects/{project}/runs:compare", schemas.Comparison, run=list(runs), tolerance=tolerance
        )

    def _get(self, path: str, kind: type[T], **query: Any) -> T:
        return _parsed(self._answer("GET", path, safe=True, params=_given(**query)), kind)

    def _send(
        self, method: str, path: str, kind: type[T] | None, body: BaseModel | None = None, *, key: str | None = None
    ) -> T:
        headers = {"Idempotency-Key": key} if key else {}
        document = None if body is None else body.model_dump(mode="json")
        safe = key is not None or method in ("PUT", "DELETE")
        answer = self._answer(method, path, safe=safe, json=document, headers=headers)
        return _parsed(answer, kind) if kind is not None else None  # type: ignore[return-value]

    def _answer(self, method: str, path: str, *, safe: bool, headers: Any = None, **more: Any) -> httpx2.Response:
        """One request; where it is safe, again while the service says `later` or does not answer."""
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            try:
                answer = self._http.request(method, path, headers=self._headers | (headers or {}), **more)
            except httpx2.TransportError as error:
                if not safe or last:
                    raise NotReady(
                        f"the service does not answer: {error}",
                        subject=str(self._http.base_url),
                        remedy="isthmus serve",
                    ) from error
                self._sleep(min(2.0**attempt, LONGEST_PAUSE))
                continue
            if answer.status_code < 400:
                return answer
            if answer.status_code not in (429, 503) or last or (not safe and answer.status_code != 429):
                raise _error(answer)
            self._sleep(min(float(answer.headers.get("Retry-After", 1)), LONGEST_PAUSE))
        raise AssertionError("the last attempt returns or raises")


def _parsed(answer: httpx2.Response, kind: type[T]) -> T:
    return TypeAdapter(kind).validate_json(answer.content)


def _error(answer: httpx2.Response) -> IsthmusError:
    try:
        problem = answer.json()
    except ValueError:
        problem = {"detail": f"the service answered {answer.status_code}: {answer.text[:200]}"}
    kind = _KINDS.get(problem.get("type", ""), IsthmusError)
    words = {"subject": problem.get("object", ""), "remedy": problem.get("next", "")}
    if kind is model.TooManyRequests:
        return model.TooManyRequests(problem["detail"], seconds=float(answer.headers.get("Retry-After", 1)), **words)
    return kind(problem.get("detail", ""), **words)


def _given(**query: Any) -> dict[str, Any]:
    return {key: value for key, value in query.items() if value is not None}


def _new_key() -> str:
    return secrets.token_hex(16)
