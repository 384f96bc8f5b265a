"""One HTTP request to a model's endpoint and its whole reply (memory-agent.md §10.1).

HTTP/1.1, no redirects, nothing from the environment but what core/settings gave; no cookie is kept. What is sent and what
is answered appears in no log and no error.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy

import httpx

from core.models.wire import Limit, LimitedTransport

CONNECT_SECONDS = 10.0
WRITE_SECONDS = 60.0
SILENCE_SECONDS = 60.0
"""After the headers came: so long without a byte cuts the attempt."""
REPLY_BYTES = 64 * 1024 * 1024
"""A longer reply is cut there, and then does not parse."""
REFUSAL_BYTES = 64 * 1024
REFUSAL_SECONDS = 2.0
"""A refusal's body says nothing that is needed; it is read so that the connection can be used again."""
IDLE_CONNECTIONS = 64
IDLE_SECONDS = 15.0


class NotSent(Exception):
    """The endpoint was never reached: nothing was sent and nothing can be billed."""


class Lost(Exception):
    """The connection broke, or the reply stopped or never came, after sending: it may have been billed."""


class TimedOut(Lost):
    """The whole reply was not there in time."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A reply; `headers` by lower-case name."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """Connections to all endpoints of a process, for any number of threads."""

    def __init__(self, monotonic: Callable[[], float], silence: float = SILENCE_SECONDS) -> None:
        """`silence`: seconds, instead of 60."""
        self._monotonic = monotonic
        self._silence = silence
        self._limit = Limit()
        limits = httpx.Limits(
            max_connections=None, max_keepalive_connections=IDLE_CONNECTIONS, keepalive_expiry=IDLE_SECONDS
        )
        self._client = httpx.Client(
            follow_redirects=False,
            trust_env=False,
            transport=LimitedTransport(limits, self._limit, monotonic),
            # No compression: a small reply must not become a large one.
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "muniment"},
        )
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def post(self, url: str, body: bytes, key: str, seconds: float, request_id: str) -> Raw:
        """`key`: sent as a bearer token unless empty; `seconds`: from sending to the whole reply; `request_id`: ours, for the
        provider's support.

        Raises NotSent, Lost, TimedOut."""
        until = self._limit.until = self._monotonic() + seconds
        sent = {"Content-Type": "application/json", "X-Client-Request-Id": request_id}
        if key:
            sent["Authorization"] = f"Bearer {key}"
        timeout = httpx.Timeout(
            seconds, connect=min(seconds, CONNECT_SECONDS), write=min(seconds, WRITE_SECONDS), pool=CONNECT_SECONDS
        )
        try:
            with self._client.stream("POST", url, content=body, headers=sent, timeout=timeout) as response:
                headers = {name.lower(): value for name, value in response.headers.items()}
                if not response.is_success:
                    self._drain(response)
                    return Raw(response.status_code, headers, b"")
                return Raw(response.status_code, headers, self._read(response))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
            raise NotSent(type(error).__name__) from None
        except (httpx.ReadTimeout, httpx.WriteTimeout):
            raise (TimedOut if self._monotonic() >= until else Lost)("the reply fell silent") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Lost(type(error).__name__) from None

    def close(self) -> None:
        self._client.close()

    def _read(self, response: httpx.Response) -> bytes:
        _patience(response, self._silence)
        read = bytearray()
        for part in response.iter_raw():
            read += part
            if len(read) > REPLY_BYTES:
                break
        return bytes(read)

    def _drain(self, response: httpx.Response) -> None:
        _patience(response, REFUSAL_SECONDS)
        self._limit.until = min(self._limit.until, self._monotonic() + REFUSAL_SECONDS)
        read = 0
        try:
            for part in response.iter_raw():
                read += len(part)
                if read > REFUSAL_BYTES:
                    return
        except httpx.HTTPError:
            return


def _patience(response: httpx.Response, seconds: float) -> None:
    """How long the body may be silent: the transport looks it up when its reading begins, and until then the headers could
    take all the time there was."""
    response.request.extensions["timeout"]["read"] = seconds
