"""A double of an S3 server: enough of the protocol for the real client, nothing of S3's rest.

Path-style PUT, GET (with ranges), HEAD, DELETE, bulk delete and list-objects-v2 on one
bucket in memory. Signatures are not checked, only that the access key is the right one when
one is set. It says nothing about a real store's consistency, limits or failures.
"""

from __future__ import annotations

import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from xml.sax.saxutils import escape

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PAGE = 3  # names in one page of a listing, few so that tests cross pages


class S3Double:
    """One bucket; `status` other than 0 makes every request fail with it."""

    def __init__(self, bucket: str = "kv", access_key: str = "") -> None:
        self.bucket = bucket
        self.access_key = access_key
        self.objects: dict[str, bytes] = {}
        self.status = 0
        self.requests: list[str] = []

    def app(self) -> Starlette:
        methods = ["GET", "HEAD", "PUT", "DELETE", "POST"]
        return Starlette(routes=[Route("/{path:path}", self._serve, methods=methods)])

    async def _serve(self, request: Request) -> Response:
        self.requests.append(request.method)
        bucket, _, name = request.path_params["path"].partition("/")
        refusal = self._refuse(request.headers.get("authorization", ""), bucket)
        if refusal is not None:
            return refusal
        if request.method == "PUT":
            self.objects[name] = await request.body()
            return Response(headers={"ETag": '"0"'})
        if request.method == "POST":
            return self._delete_many(await request.body())
        if request.method == "DELETE":
            self.objects.pop(name, None)
            return Response(status_code=204)
        return self._get(name, request.headers.get("range")) if name else self._list(request)

    def _refuse(self, credential: str, bucket: str) -> Response | None:
        if self.status:
            return _error(self.status, "Injected")
        if self.access_key and f"Credential={self.access_key}/" not in credential:
            return _error(403, "InvalidAccessKeyId")
        return _error(404, "NoSuchBucket") if bucket != self.bucket else None

    def _get(self, name: str, wanted: str | None) -> Response:
        if name not in self.objects:
            return _error(404, "NoSuchKey")
        body, size, status = self.objects[name], len(self.objects[name]), 200
        headers = {"ETag": '"0"', "Last-Modified": "Tue, 01 Dec 2026 00:00:00 GMT"}
        if wanted:
            first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", wanted).groups())
            body, status = body[first : last + 1], 206
            headers["Content-Range"] = f"bytes {first}-{first + len(body) - 1}/{size}"
        return Response(body, status_code=status, headers=headers)

    def _list(self, request: Request) -> Response:
        prefix = request.query_params.get("prefix", "")
        after = request.query_params.get("continuation-token", "")
        names = sorted(n for n in self.objects if n.startswith(prefix) and n > after)
        page, more = names[:PAGE], len(names) > PAGE
        entries = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(self.objects[name])}</Size>"
            "<LastModified>2026-12-01T00:00:00.000Z</LastModified><ETag>0</ETag></Contents>"
            for name in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        truncated = str(more).lower()
        return _xml(
            f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{token}{entries}"
            "</ListBucketResult>"
        )

    def _delete_many(self, body: bytes) -> Response:
        names = [e.text or "" for e in ET.fromstring(body).iter() if e.tag.endswith("Key")]
        for name in names:
            self.objects.pop(name, None)
        deleted = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in names)
        return _xml(f"<DeleteResult>{deleted}</DeleteResult>")


@contextmanager
def serving(double: S3Double) -> Iterator[str]:
    """The double behind HTTP on a free port of 127.0.0.1; yields its endpoint."""
    config = uvicorn.Config(double.app(), host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive(), "the S3 double did not start"
    host, port = server.servers[0].sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join()


def _error(status: int, code: str) -> Response:
    return _xml(f"<Error><Code>{code}</Code></Error>", status)


def _xml(body: str, status: int = 200) -> Response:
    return Response(body, status_code=status, media_type="application/xml")
