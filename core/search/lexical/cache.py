"""What a process keeps in memory of all stores' indexes, bounded in bytes."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from itertools import count
from uuid import UUID

from core.search.lexical.known import Known

StoreKey = tuple[UUID, UUID, int]
"""Tenant, store and index version."""


class Cache:
    """Stores and their terms, each with its size; what was not used for longest goes first, a store with its terms.

    What one search needs is kept while it runs, whatever its size."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._stores: dict[StoreKey, Known] = {}
        self._names: dict[int, StoreKey] = {}
        self._serials = count(1)
        self._sizes: OrderedDict[tuple[int, bytes | None], int] = OrderedDict()
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes that are kept now, about."""
        return self._bytes

    def store(self, key: StoreKey) -> Known:
        with self._lock:
            known = self._stores.get(key)
            if known is None:
                known = self._stores[key] = Known(next(self._serials))
                self._names[known.serial] = key
            return known

    def used(self, known: Known, terms: Iterable[bytes]) -> None:
        """After a search, under `known.lock`: what it used is the newest; then the oldest goes until the bound holds."""
        with self._lock:
            if known.serial not in self._names:
                return
            for term in terms:
                entry = known.terms.get(term)
                if entry is not None:
                    self._charge((known.serial, term), entry.size)
            self._charge((known.serial, None), known.size)
            while self._bytes > self._limit and self._sizes:
                (serial, term), _ = next(iter(self._sizes.items()))
                if term is None:
                    self._forget(serial)
                else:
                    self._release((serial, term))
                    self._stores[self._names[serial]].terms.pop(term, None)

    def drop(self, known: Known) -> None:
        """Forgets a store, if it is still this one that is kept."""
        with self._lock:
            self._forget(known.serial)

    def forget_terms(self, known: Known) -> None:
        """After the store's terms became void."""
        with self._lock:
            for entry in [entry for entry in self._sizes if entry[0] == known.serial]:
                self._release(entry)

    def _forget(self, serial: int) -> None:
        for entry in [entry for entry in self._sizes if entry[0] == serial]:
            self._release(entry)
        name = self._names.pop(serial, None)
        if name is not None:
            del self._stores[name]

    def _charge(self, entry: tuple[int, bytes | None], size: int) -> None:
        before = self._sizes.get(entry)
        if before == size:
            self._sizes.move_to_end(entry)
            return
        self._bytes += size - self._sizes.pop(entry, 0)
        self._sizes[entry] = size

    def _release(self, entry: tuple[int, bytes | None]) -> None:
        self._bytes -= self._sizes.pop(entry, 0)
