"""The embedders of one process: each profile is opened once, the built-in weights are loaded once."""

import threading
from collections.abc import Sequence

from core.models.builtin import Builtin, NotInstalled
from core.models.embedding import PROFILES, Embedder, EmbeddingRefused, Profile, Vectors
from core.models.served import QUERY_SECONDS, Served


class Embedders:
    """Made once a process and handed to what embeds; `close` at its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Profile, Embedder] = {}
        self._local = _Local(Builtin())

    def named(self, name: str) -> Embedder:
        """The embedder of a profile that a store names. Raises EmbeddingRefused."""
        profile = PROFILES.get(name)
        if profile is None:
            raise EmbeddingRefused(f"there is no embedding profile {name!r}: change the store's `embedding`")
        return self.of(profile)

    def of(self, profile: Profile) -> Embedder:
        with self._lock:
            if profile not in self._open:
                self._open[profile] = self._made(profile)
            return self._open[profile]

    def close(self) -> None:
        with self._lock:
            for embedder in self._open.values():
                embedder.close()
            self._open.clear()

    def _made(self, profile: Profile) -> Embedder:
        if profile.kind == "builtin":
            return Embedder(profile, self._local)
        return Embedder(profile, Served(profile), queries=Served(profile, QUERY_SECONDS))


class _Local:
    """The built-in model; that it is absent is an error of the set-up, like a server that refuses."""

    def __init__(self, model: Builtin) -> None:
        self._model = model

    def embed(self, texts: Sequence[str]) -> Vectors:
        try:
            return self._model.embed(texts)
        except NotInstalled as error:
            raise EmbeddingRefused(str(error)) from error

    def close(self) -> None:
        self._model.close()
