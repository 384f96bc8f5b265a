"""The embedders of one process: each profile is opened once, the built-in weights are loaded once."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from core.models.builtin import Builtin, NotInstalled
from core.models.catalogue import Named
from core.models.embedding import Embedder, EmbeddingRefused, Profile, Purpose, Vectors
from core.models.gateway import Gateway
from core.models.model import Call

KEPT = 256


class Granted(Protocol):
    """Who may use which profile (core/models/catalogue.py)."""

    def embedding(self, tenant_id: UUID, named: Named) -> Profile: ...


class Embedders:
    """Made once a process and handed to what embeds. Served profiles go through the gateway."""

    def __init__(self, profiles: Granted, gateway: Gateway) -> None:
        self._profiles = profiles
        self._gateway = gateway
        self._lock = threading.Lock()
        self._open: OrderedDict[Profile, Embedder] = OrderedDict()
        self._local = _Local(Builtin())

    def named(self, tenant_id: UUID, named: Named) -> Embedder:
        """The embedder of a profile that a store's configuration names. Raises EmbeddingRefused."""
        return self.of(self._profiles.embedding(tenant_id, named))

    def of(self, profile: Profile) -> Embedder:
        with self._lock:
            if profile not in self._open:
                provider = self._local if profile.kind == "builtin" else _Served(profile, self._gateway)
                self._open[profile] = Embedder(profile, provider)
            self._open.move_to_end(profile)
            while len(self._open) > KEPT:
                self._open.popitem(last=False)
            return self._open[profile]


class _Local:
    """The built-in model; that it is absent is an error of the set-up, like a server that refuses."""

    def __init__(self, model: Builtin) -> None:
        self._model = model

    def embed(self, texts: Sequence[str], purpose: Purpose, call: Call) -> Vectors:
        del purpose, call
        try:
            return self._model.embed(texts)
        except NotInstalled as error:
            raise EmbeddingRefused(str(error)) from error


class _Served:
    """A server, asked through the gateway."""

    def __init__(self, profile: Profile, gateway: Gateway) -> None:
        self._profile = profile
        self._gateway = gateway

    def embed(self, texts: Sequence[str], purpose: Purpose, call: Call) -> Vectors:
        return self._gateway.embed(self._profile, texts, purpose, call)
