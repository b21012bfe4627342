"""Amazon S3 by its REST API (API reference version 2006-03-01), and servers that speak it.

What arrived is shown by reading it back, so bodies are not signed (signature.py).
"""

from __future__ import annotations

import contextlib
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from email.header import decode_header, make_header
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_plus, urlencode
from xml.etree import ElementTree

from isthmus.migration.objects.credentials import AwsKeys
from isthmus.migration.objects.http import Answer, Http, total_size
from isthmus.migration.objects.signature import Signer
from isthmus.migration.objects.store import (
    Body,
    Changed,
    Denied,
    Gone,
    Item,
    Metadata,
    Part,
    StoreError,
    Transient,
    UploadLost,
)
from isthmus.migration.objects.tries import tried
from isthmus.specs.errors import NotFound

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

KEY_LIMIT = 1024
"""Bytes of a key in UTF-8 (S3 user guide, object key naming)."""
USER_METADATA_LIMIT = 2048
"""Bytes of all names and values together (S3 user guide, working with object metadata)."""
PROBE = ".isthmus-may-write"
UNREADABLE = "\ufffd"
_META = "x-amz-meta-"
_SYSTEM = {
    "content_type": "content-type",
    "content_encoding": "content-encoding",
    "content_language": "content-language",
    "content_disposition": "content-disposition",
    "cache_control": "cache-control",
}
_TOKEN = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
SKEWED = frozenset({"RequestTimeTooSkewed"})


class S3:
    """One bucket of S3, or of a server that speaks its API."""

    def __init__(
        self,
        bucket: str,
        *,
        region: str,
        keys: Callable[[], AwsKeys],
        endpoint: str | None = None,
        connections: int = 16,
    ) -> None:
        """
        Args:
            keys: gives keys that are valid now.
            endpoint: URL of a server other than Amazon's.
            connections: threads that will use it.
        """
        self.url = f"s3://{bucket}"
        self._bucket, self._keys = bucket, keys
        self._base = f"{endpoint.rstrip('/')}/{bucket}" if endpoint else f"https://{bucket}.s3.{region}.amazonaws.com"
        self._http = Http(self.url, connections)
        self._signer = Signer(region)

    def check(self, *, write: bool) -> None:
        """See ObjectStore."""
        answer = tried(lambda: self._send("GET", "", query={"list-type": "2", "max-keys": "1"}))
        if answer.status == 404:
            raise NotFound(f"there is no bucket {self._bucket}", subject=self.url, remedy="isthmus up makes it")
        self._accept(answer, "list the objects of the bucket")
        if write:
            self.abort(PROBE, tried(lambda: self.begin(PROBE, 0, Metadata())))

    def items(self) -> Iterator[Item]:
        """See ObjectStore."""
        token = ""
        while True:
            page, keys = self._page(token)
            for key, entry in zip(keys, _all(page, "Contents"), strict=True):
                modified = datetime.fromisoformat(_text(entry, "LastModified"))
                yield Item(key, int(_text(entry, "Size")), _version(_text(entry, "ETag"), modified))
            token = _text(page, "NextContinuationToken")
            if _text(page, "IsTruncated") != "true" or not token:
                return

    def _page(self, token: str) -> tuple[ElementTree.Element, list[str]]:
        """A page of the listing, and its keys. Those that XML cannot hold (control characters: no XML, or U+FFFD in their
        place) are asked for URL-encoded; only those, since servers do not agree on what a + means there."""
        query = {"list-type": "2", **({"continuation-token": token} if token else {})}
        answer = tried(lambda: self._send("GET", "", query=query))
        self._accept(answer, "list the objects of the bucket")
        plain: ElementTree.Element | None = None
        with contextlib.suppress(ElementTree.ParseError):
            plain = ElementTree.fromstring(answer.body)
            keys = [_text(entry, "Key") for entry in _all(plain, "Contents")]
            if not any(UNREADABLE in key for key in keys):
                return plain, keys
        answer = tried(lambda: self._send("GET", "", query={**query, "encoding-type": "url"}))
        self._accept(answer, "list the objects of the bucket")
        encoded = ElementTree.fromstring(answer.body)
        readable = [unquote_plus(_text(entry, "Key")) for entry in _all(encoded, "Contents")]
        if plain is not None:
            readable = [said if UNREADABLE in key else key for key, said in zip(keys, readable, strict=True)]
        return encoded, readable

    def stat(self, key: str) -> Item:
        """See ObjectStore."""
        answer = self._send("HEAD", key)
        self._accept(answer, f"look at {key}")
        return Item(key, int(answer.headers["content-length"]), _version_of(answer), _metadata(answer.headers))

    @contextlib.contextmanager
    def read(self, key: str, *, version: str, start: int, length: int) -> Iterator[Body]:
        """See ObjectStore."""
        headers = {"if-match": _etag(version)} if version else {}
        if length:
            headers["range"] = f"bytes={start}-{start + length - 1}"
        url, headers = self._signed("GET", key, {}, headers)
        with self._http.open(url, headers) as answer:
            if answer.status not in {200, 206}:
                self._refuse(answer.status, answer.read(2000, decode_content=False), f"read {key}")
            found = _version_of(answer)
            if version and found != version:
                raise Changed(f"{key} was written again", subject=self.url)
            yield Body(found, total_size(answer.headers), _metadata(answer.headers), self._http.chunks(answer, length))

    def write(self, key: str, data: bytes, metadata: Metadata) -> None:
        """See ObjectStore."""
        answer = self._send("PUT", key, headers=_headers(metadata), body=data)
        self._accept(answer, f"write {key}")

    def begin(self, key: str, size: int, metadata: Metadata) -> str:
        """See ObjectStore."""
        answer = self._send("POST", key, query={"uploads": ""}, headers=_headers(metadata), body=b"")
        self._accept(answer, f"write {key}")
        return _find(answer.body, "UploadId")

    def write_part(self, key: str, upload: str, part: Part, chunks: Iterator[bytes]) -> str:
        """See ObjectStore."""
        query = {"partNumber": str(part.number), "uploadId": upload}
        answer = self._send("PUT", key, query=query, headers={"content-length": str(part.length)}, body=chunks)
        self._accept(answer, f"write part {part.number} of {key}")
        return str(answer.headers["etag"])

    def finish(self, key: str, upload: str, tags: list[str]) -> None:
        """See ObjectStore. The answer may be 200 and hold an error all the same (API reference, CompleteMultipartUpload)."""
        listed = "".join(
            f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>" for n, tag in enumerate(tags, 1)
        )
        text = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>"
        answer = self._send("POST", key, query={"uploadId": upload}, body=text.encode())
        self._accept(answer, f"finish {key}")
        if b"<Error>" in answer.body:
            raise Transient(f"finishing {key}: {_find(answer.body, 'Message')}", subject=self.url)

    def abort(self, key: str, upload: str) -> None:
        """See ObjectStore."""
        answer = self._send("DELETE", key, query={"uploadId": upload})
        if answer.status != 404:
            self._accept(answer, f"forget an upload of {key}")

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        answer = self._send("DELETE", key)
        if answer.status != 404:
            self._accept(answer, f"delete {key}")

    def refuses(self, key: str) -> str:
        """See ObjectStore."""
        return f"S3 keys have at most {KEY_LIMIT} bytes" if len(key.encode()) > KEY_LIMIT else ""

    def losses(self, metadata: Metadata) -> list[str]:
        """See ObjectStore. S3 keeps names in lower case and 2 KiB of pairs."""
        kept, lost = _pairs(metadata.user)
        size = sum(len(name) + len(value) for name, value in kept.items())
        if size > USER_METADATA_LIMIT:
            lost.append(f"{size} bytes of metadata, S3 keeps {USER_METADATA_LIMIT}")
        return lost

    def _send(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> Answer:
        url, signed = self._signed(method, key, query or {}, dict(headers or {}))
        answer = self._http.send(method, url, signed, body)
        if answer.status == 403 and _find(answer.body, "Code") in SKEWED and "date" in answer.headers:
            # As Amazon's own clients do: go by the server's clock from now on. The body may be used up, so the caller
            # tries again.
            skew = self._signer.set_clock(answer.headers["date"])
            raise Transient(f"this machine's clock is {skew:.0f} s off the server's", subject=self.url)
        return answer

    def _signed(
        self, method: str, key: str, query: Mapping[str, str], headers: dict[str, str]
    ) -> tuple[str, dict[str, str]]:
        path = quote(key, safe="/~-_.")
        text = urlencode(sorted(query.items()), quote_via=quote)
        url = f"{self._base}/{path}" if path else self._base + ("" if "amazonaws" not in self._base else "/")
        url = f"{url}?{text}" if text else url
        return url, self._signer.sign(self._keys(), method, url, headers)

    def _accept(self, answer: Answer, what: str) -> None:
        if answer.status >= 300:
            self._refuse(answer.status, answer.body, what)

    def _refuse(self, status: int, body: bytes, what: str) -> None:
        code, text = _find(body, "Code"), _find(body, "Message") or f"status {status}"
        said = f"{code}: {text}" if code else text
        if code == "NoSuchUpload":
            raise UploadLost(f"could not {what}: {said}", subject=self.url)
        if status == 404:
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


def _version(etag: str, modified: datetime) -> str:
    """ETag and second of the last write: an object that gets other metadata and the same bytes keeps its ETag."""
    return f"{etag.strip(chr(34))}@{int(modified.timestamp())}"


def _version_of(answer: Answer | BaseHTTPResponse) -> str:
    return _version(answer.headers.get("etag", ""), parsedate_to_datetime(answer.headers["last-modified"]))


def _etag(version: str) -> str:
    return f'"{version.rpartition("@")[0] or version}"'


def _metadata(headers: Mapping[str, str]) -> Metadata:
    system = {name: headers.get(header, "") for name, header in _SYSTEM.items()}
    # aws-chunked tells how a body travelled, not what it is (S3 user guide, signature calculations).
    encodings = [part.strip() for part in system["content_encoding"].split(",") if part.strip() != "aws-chunked"]
    system["content_encoding"] = ", ".join(part for part in encodings if part)
    user = {
        name.lower().removeprefix(_META): _decoded(value)
        for name, value in headers.items()
        if name.lower().startswith(_META)
    }
    return Metadata(**system, user=user)


def _headers(metadata: Metadata) -> dict[str, str]:
    """Headers that carry the metadata, without what S3 cannot keep (see `losses`)."""
    headers = {header: getattr(metadata, name) for name, header in _SYSTEM.items() if getattr(metadata, name)}
    headers.setdefault("content-type", "application/octet-stream")
    kept, _ = _pairs(metadata.user)
    return {**headers, **{f"{_META}{name}": value for name, value in kept.items()}}


def _pairs(user: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The user's pairs as headers, and what that loses."""
    kept: dict[str, str] = {}
    lost: list[str] = []
    for name, value in sorted(user.items()):
        lower = name.lower()
        if not _TOKEN.fullmatch(lower):
            lost.append(f"metadata {name!r}: no header can have that name")
        elif lower in kept:
            lost.append(f"metadata {name!r}: S3 keeps names in lower case, and {lower!r} is taken")
        else:
            kept[lower] = _encoded(value)
            if lower != name:
                lost.append(f"metadata {name!r} becomes {lower!r}: S3 keeps names in lower case")
    return kept, lost


def _encoded(value: str) -> str:
    """Values beyond printable ASCII as RFC 2047 has them, in which S3 also returns them (user guide, object metadata)."""
    if value.isascii() and value.isprintable() and value == value.strip() and "=?" not in value:
        return value
    return f"=?UTF-8?B?{b64encode(value.encode()).decode()}?="


def _decoded(value: str) -> str:
    return str(make_header(decode_header(value))) if "=?" in value else value


def _all(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """The children of that name, in whatever namespace (servers differ)."""
    return [child for child in element if child.tag.rpartition("}")[2] == name]


def _text(element: ElementTree.Element, name: str) -> str:
    return next((child.text or "" for child in _all(element, name)), "")


def _find(body: bytes, name: str) -> str:
    """Text of the first element of that name, "" where there is none or no XML."""
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError:
        return ""
    return next((item.text or "" for item in root.iter() if item.tag.rpartition("}")[2] == name), "")
