"""The client commands' side of the HTTP API. Every wait has a bound, and what is sent twice is done once."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import sleep
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx

from core.clock import monotonic
from core.errors import JobFailed, MunimentError, Unauthenticated, Unavailable, from_json
from core.ids import token
from core.jobs.model import TERMINAL
from core.settings import SettingsError, load
from workers.embedded.datadir import DataDir, read_key

ACCEPTED, BAD_REQUEST, UNAVAILABLE = 202, 400, 503
TRIES = 3
BACK_OFF_S = 0.5
POLL_S = (0.1, 0.2, 0.4, 0.8, 1.5)
LONGEST_WAIT_S = 300
"""The most that `Prefer: wait` may ask for."""
PAGE = 1_000
START = "start `muniment up`, or set MUNIMENT_URL (or --url)"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
Query = Mapping[str, str | int | list[str] | None]


def connect(url: str | None, key_file: Path | None, timeout: float, connect_timeout: float) -> "Client":
    """A client for the options that every client command has. Raises Unauthenticated when no key is found, SettingsError
    for what is no address."""
    settings = load()
    data = DataDir(settings.data_dir)
    running = None if url or "url" in settings.model_fields_set else data.running()
    address = url or (running and running.url) or settings.url
    _check(address, "--url" if url else "MUNIMENT_URL")
    key = _key(address, key_file, settings.api_key.get_secret_value(), data)
    return Client(address, key, timeout=timeout, connect_timeout=connect_timeout)


def _check(url: str, name: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:  # a port that is none, a bracket that does not close
        good = False
    if not good:
        raise SettingsError(f"{name}: {url!r} is no address such as http://127.0.0.1:8420")


def _key(url: str, file: Path | None, given: str, data: DataDir) -> str:
    if file is not None:
        key = read_key(file)
        if key is None:
            raise Unauthenticated(f"{file} holds no key that can be read")
        return key
    # The local stack's key is for no other machine.
    key = given or (read_key(data.key_file) if urlsplit(url).hostname in LOOPBACK else None)
    if key and not (key.isascii() and key.isprintable()):
        raise Unauthenticated("MUNIMENT_API_KEY holds characters that no key has")
    if not key:
        raise Unauthenticated(
            f"no key: start `muniment up` here, set MUNIMENT_API_KEY or give --key-file ({data.key_file} is not there)"
        )
    return key


class Client:
    """Paths are those below `/v1`. Raises the API's problems as their `core.errors` class, Unavailable when it is silent."""

    def __init__(self, url: str, key: str, *, timeout: float, connect_timeout: float) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._http = httpx.Client(
            base_url=f"{self.url}/v1",
            headers={"Authorization": f"Bearer {key}"},
            trust_env=urlsplit(url).hostname not in LOOPBACK,  # no proxy stands between us and ourselves
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 0,
    ) -> httpx.Response:
        """One answer below 400. `wait`: how long the request itself may take. Tried again after a lost connection or a
        503 where that cannot do anything twice."""
        given = {"Content-Type": "application/json", **(headers or {})} if body is not None else dict(headers or {})
        tries = TRIES if method in {"GET", "HEAD", "PUT", "DELETE"} or "Idempotency-Key" in given else 1
        request = self._http.build_request(
            method,
            path,
            content=body,
            params={name: value for name, value in (query or {}).items() if value is not None},
            headers=given,
            timeout=httpx.Timeout(self._timeout + wait, connect=self._connect_timeout),
        )
        for attempt in range(1, tries + 1):
            try:
                response = self._http.send(request)
            except httpx.TransportError as error:
                if attempt == tries:
                    raise self._silent(error) from error
            else:
                if response.status_code != UNAVAILABLE or attempt == tries:
                    return _accepted(response)
            sleep(BACK_OFF_S * 2 ** (attempt - 1))
        raise AssertionError("the last try returns or raises")

    def stream(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """The parts of a long answer as they come. Raises Unavailable when it breaks off."""
        params = {name: value for name, value in (query or {}).items() if value is not None}
        limits = httpx.Timeout(self._timeout, connect=self._connect_timeout)
        try:
            with self._http.stream("GET", path, params=params, timeout=limits) as response:
                if response.status_code >= BAD_REQUEST:
                    response.read()
                    _accepted(response)
                yield from response.iter_raw()
        except httpx.TransportError as error:
            raise self._silent(error) from error

    def _silent(self, error: httpx.TransportError) -> Unavailable:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return Unavailable(f"no Muniment answers at {self.url} ({_cause(error)}): {START}")
        return Unavailable(f"{self.url} broke off or did not answer in time ({_cause(error)})")

    def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        return self.send("GET", path, query=query).json()

    def items(self, path: str, limit: int, query: Query | None = None) -> list[dict[str, Any]]:
        """The first `limit` items of a list, page by page."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while len(found) < limit:
            page = self.get(path, {**(query or {}), "limit": min(limit - len(found), PAGE), "cursor": cursor})
            found += page["items"]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        return found

    def run(
        self, path: str, body: bytes | None, *, wait: float, method: str = "POST", key: str | None = None
    ) -> tuple[bool, dict[str, Any]]:
        """Sends what becomes a job. (True, its result), or (False, the job) when it was not done after `wait` seconds:
        accepted all the same. Raises the problem of a job that ended badly."""
        deadline = monotonic() + wait
        asked = int(min(wait, LONGEST_WAIT_S))
        headers = {"Idempotency-Key": key or f"cli-{token()}", "Prefer": f"wait={asked}"}
        response = self.send(method, path, body=body, headers=headers, wait=asked)
        if response.status_code != ACCEPTED:
            return True, response.json()
        job: dict[str, Any] = response.json()
        if wait > 0:
            *_, job = self.follow(job["id"], deadline - monotonic())
        if job["state"] == "succeeded":
            return True, job.get("result", {})
        if job["state"] in TERMINAL:
            raise ended_badly(job)
        return False, job

    def follow(self, job_id: str, seconds: float) -> Iterator[dict[str, Any]]:
        """The job whenever it is looked at, until it has ended or `seconds` have passed; at least once."""
        deadline = monotonic() + seconds
        looks = 0
        while True:
            job = self.get(f"/jobs/{quoted(job_id)}")
            yield job
            left = deadline - monotonic()
            if job["state"] in TERMINAL or left <= 0:
                return
            sleep(min(POLL_S[min(looks, len(POLL_S) - 1)], left))
            looks += 1


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def ended_badly(job: Mapping[str, Any]) -> MunimentError:
    """The problem that a job ended with."""
    problem = job.get("error")
    return from_json(problem) if problem else JobFailed(f"job {job['id']} is {job['state']}")


def _accepted(response: httpx.Response) -> httpx.Response:
    if response.status_code < BAD_REQUEST:
        return response
    try:
        problem = json.loads(response.content)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        raise Unavailable(f"{response.request.url} answered {response.status_code} {response.reason_phrase}")
    raise from_json(problem)  # pyright: ignore[reportUnknownArgumentType]


def quoted(part: str) -> str:
    """One segment of a path, whatever a person typed."""
    return quote(part, safe="")
