"""Google Cloud Storage by its JSON API (v1), and servers that speak it. Tokens are google-auth's, when they are needed.

Objects are written in one multipart request, large ones in a resumable upload: one session, its parts in order. Objects stored
with Content-Encoding gzip are read as they are stored: the API unpacks them for readers that do not accept gzip.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from isthmus.migration.objects.http import Answer, Http, total_size
from isthmus.migration.objects.store import Body, Changed, Denied, Gone, Item, Metadata, Part, StoreError, UploadLost
from isthmus.migration.objects.tries import tried
from isthmus.specs.errors import NotFound

ENDPOINT = "https://storage.googleapis.com"
KEY_LIMIT = 1024
"""Bytes of a name in UTF-8 (Cloud Storage documentation, object name requirements)."""
USER_METADATA_LIMIT = 8192
"""Bytes of all names and values together (Cloud Storage documentation, quotas and limits)."""
PROBE = ".isthmus-may-write"
_FIELDS = "name,size,generation,metageneration,contentType,contentEncoding,contentLanguage,contentDisposition,cacheControl,metadata"
_SYSTEM = {
    "content_type": "contentType",
    "content_encoding": "contentEncoding",
    "content_language": "contentLanguage",
    "content_disposition": "contentDisposition",
    "cache_control": "cacheControl",
}


class Gcs:
    """One bucket of Cloud Storage, or of a server that speaks its JSON API."""

    def __init__(
        self,
        bucket: str,
        *,
        token: Callable[[], str] | None,
        endpoint: str | None = None,
        connections: int = 16,
    ) -> None:
        """
        Args:
            token: gives an access token that is valid now; None where the server asks for none.
            endpoint: URL of a server other than Google's.
            connections: threads that will use it.
        """
        self.url = f"gs://{bucket}"
        self._bucket, self._token = bucket, token
        base = (endpoint or ENDPOINT).rstrip("/")
        self._objects = f"{base}/storage/v1/b/{quote(bucket, safe='')}/o"
        self._uploads = f"{base}/upload/storage/v1/b/{quote(bucket, safe='')}/o"
        self._http = Http(self.url, connections)

    def check(self, *, write: bool) -> None:
        """See ObjectStore."""
        answer = tried(lambda: self._send("GET", f"{self._objects}?maxResults=1&fields=items(name)"))
        if answer.status == 404:
            raise NotFound(f"there is no bucket {self._bucket}", subject=self.url, remedy="isthmus up makes it")
        self._accept(answer, "list the objects of the bucket")
        if write:
            self.abort(PROBE, tried(lambda: self.begin(PROBE, 0, Metadata())))

    def items(self) -> Iterator[Item]:
        """See ObjectStore."""
        token = ""
        while True:
            query = {"fields": f"nextPageToken,items({_FIELDS})", "maxResults": "1000"}
            if token:
                query["pageToken"] = token
            url = f"{self._objects}?{urlencode(query)}"
            answer = tried(lambda url=url: self._send("GET", url))  # type: ignore[misc]
            self._accept(answer, "list the objects of the bucket")
            page = json.loads(answer.body)
            for entry in page.get("items", ()):
                yield _item(entry)
            token = page.get("nextPageToken", "")
            if not token:
                return

    def stat(self, key: str) -> Item:
        """See ObjectStore."""
        answer = self._send("GET", f"{self._object(key)}?fields={_FIELDS}")
        self._accept(answer, f"look at {key}")
        return _item(json.loads(answer.body))

    @contextlib.contextmanager
    def read(self, key: str, *, version: str, start: int, length: int) -> Iterator[Body]:
        """See ObjectStore. A generation that was replaced is gone, or with versioning on still there: both are Changed
        when the object itself exists."""
        query = {"alt": "media"}
        generation = version.partition(".")[0]
        if generation:
            query["ifGenerationMatch"] = generation
        headers = self._headers({"accept-encoding": "gzip"})
        if length:
            headers["range"] = f"bytes={start}-{start + length - 1}"
        with self._http.open(f"{self._object(key)}?{urlencode(query)}", headers) as answer:
            if answer.status not in {200, 206}:
                self._refuse(answer.status, answer.read(2000, decode_content=False), f"read {key}")
            found = answer.headers.get("x-goog-generation", "")
            if generation and found != generation:
                raise Changed(f"{key} was written again", subject=self.url)
            found = f"{found}.{answer.headers.get('x-goog-metageneration', 1)}"
            yield Body(found, total_size(answer.headers), None, self._http.chunks(answer, length))

    def write(self, key: str, data: bytes, metadata: Metadata) -> None:
        """See ObjectStore."""
        boundary = f"isthmus{secrets.token_hex(12)}"
        kind = metadata.content_type or "application/octet-stream"
        body = b"".join((
            f"--{boundary}\r\ncontent-type: application/json; charset=UTF-8\r\n\r\n".encode(),
            json.dumps(_resource(key, metadata)).encode(),
            f"\r\n--{boundary}\r\ncontent-type: {kind}\r\n\r\n".encode(),
            data,
            f"\r\n--{boundary}--\r\n".encode(),
        ))  # fmt: skip
        headers = {"content-type": f"multipart/related; boundary={boundary}"}
        answer = self._send("POST", f"{self._uploads}?uploadType=multipart", headers, body)
        self._accept(answer, f"write {key}")

    def begin(self, key: str, size: int, metadata: Metadata) -> str:
        """See ObjectStore. The upload is named by the URL of its session, which is good for a week."""
        headers = {"content-type": "application/json; charset=UTF-8", "x-upload-content-length": str(size)}
        body = json.dumps(_resource(key, metadata)).encode()
        answer = self._send("POST", f"{self._uploads}?uploadType=resumable", headers, body)
        self._accept(answer, f"write {key}")
        return str(answer.headers["location"])

    def write_part(self, key: str, upload: str, part: Part, chunks: Iterator[bytes]) -> str:
        """See ObjectStore. Its last part makes the object."""
        end = part.start + part.length
        headers = {
            "content-length": str(part.length),
            "content-range": f"bytes {part.start}-{end - 1}/{part.size}",
        }
        answer = self._send("PUT", upload, headers, chunks)
        if answer.status == 308 and not part.last:
            kept = int(answer.headers.get("range", "bytes=0--1").rpartition("-")[2] or -1) + 1
            if kept != end:  # the session is behind or ahead of us: what it has cannot be told from here
                raise UploadLost(f"the upload of {key} has {kept} bytes, not {end}", subject=self.url)
            return ""
        if answer.status in {404, 410}:
            raise UploadLost(f"the upload of {key} is not known any more", subject=self.url)
        self._accept(answer, f"write part {part.number} of {key}")
        if not part.last:
            raise StoreError(f"the upload of {key} ended before its end", subject=self.url)
        return ""

    def finish(self, key: str, upload: str, tags: list[str]) -> None:
        """See ObjectStore. Nothing is left to do: the last part has made the object."""

    def abort(self, key: str, upload: str) -> None:
        """See ObjectStore. 499 is the documented answer to a cancelled upload."""
        answer = self._send("DELETE", upload, {"content-length": "0"})
        if answer.status not in {404, 410, 499}:
            self._accept(answer, f"forget an upload of {key}")

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        answer = self._send("DELETE", self._object(key))
        if answer.status != 404:
            self._accept(answer, f"delete {key}")

    def refuses(self, key: str) -> str:
        """See ObjectStore. Cloud Storage documentation, object name requirements."""
        if len(key.encode()) > KEY_LIMIT:
            return f"names have at most {KEY_LIMIT} bytes"
        if "\r" in key or "\n" in key:
            return "names hold no line breaks"
        if key in {".", ".."} or key.startswith(".well-known/acme-challenge/"):
            return "Cloud Storage keeps such names for itself"
        return ""

    def losses(self, metadata: Metadata) -> list[str]:
        """See ObjectStore."""
        size = sum(len(name.encode()) + len(value.encode()) for name, value in metadata.user.items())
        if size > USER_METADATA_LIMIT:
            return [f"{size} bytes of metadata, Cloud Storage keeps {USER_METADATA_LIMIT}"]
        return []

    def _object(self, key: str) -> str:
        return f"{self._objects}/{quote(key, safe='')}"

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, "authorization": f"Bearer {self._token()}"} if self._token else dict(headers)

    def _send(self, method: str, url: str, headers: Mapping[str, str] | None = None, body: Any = None) -> Answer:
        return self._http.send(method, url, self._headers(headers or {}), body)

    def _accept(self, answer: Answer, what: str) -> None:
        if answer.status >= 300:
            self._refuse(answer.status, answer.body, what)

    def _refuse(self, status: int, body: bytes, what: str) -> None:
        said = _message(body) or f"status {status}"
        if status in {404, 410}:
            raise Gone(f"could not {what}: {said}", subject=self.url)
        if status == 412:
            raise Changed(f"could not {what}: {said}", subject=self.url)
        if status in {401, 403}:
            raise Denied(
                f"not allowed to {what}: {said}",
                subject=self.url,
                remedy="give the credentials in use that right on this bucket",
            )
        raise StoreError(f"could not {what}: {said}", subject=self.url)


def _item(entry: Mapping[str, Any]) -> Item:
    system = {name: str(entry.get(field, "")) for name, field in _SYSTEM.items()}
    metadata = Metadata(**system, user=dict(entry.get("metadata") or {}))
    return Item(str(entry["name"]), int(entry.get("size", 0)), _generation(entry), metadata)


def _generation(entry: Mapping[str, Any]) -> str:
    """Content and metadata have a number each; a change of either is another version."""
    return f"{entry['generation']}.{entry.get('metageneration', 1)}"


def _resource(key: str, metadata: Metadata) -> dict[str, Any]:
    system = {field: getattr(metadata, name) for name, field in _SYSTEM.items() if getattr(metadata, name)}
    system.setdefault("contentType", "application/octet-stream")
    return {"name": key, **system, **({"metadata": dict(metadata.user)} if metadata.user else {})}


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip()[:200]
