"""The one line of messages that a branching conversation shows. Trees are walked by parent, never by child: a parent is
always there, and the first child may be the branch its author left."""

from collections.abc import Callable, Mapping


class Tree:
    """Nodes by id, each with its parent's id. Missing parents are roots; cycles are cut where they close."""

    def __init__(self, parents: Mapping[str, str | None], time_of: Callable[[str], float]) -> None:
        """`time_of`: seconds since 1970, 0 for a node without a time."""
        self._parents = parents
        self._time_of = time_of

    def path(self, current: str | None) -> list[str]:
        """From the root down to `current`, or to the newest leaf when `current` is missing or dangling."""
        node = current if current in self._parents else self._newest_leaf()
        path: dict[str, None] = {}
        while node is not None and node in self._parents and node not in path:
            path[node] = None
            node = self._parents[node]
        return list(reversed(path))

    def _newest_leaf(self) -> str | None:
        """The leaf with the latest time; a later place in the source settles a tie. None only without nodes."""
        inner = set(self._parents.values())
        leaves = [node for node in self._parents if node not in inner] or list(self._parents)
        known: dict[str, float] = {}
        newest, latest = None, -1.0
        for leaf in leaves:
            time = self._branch_time(leaf, known)
            if time >= latest:
                newest, latest = leaf, time
        return newest

    def _branch_time(self, leaf: str, known: dict[str, float]) -> float:
        """The time of `leaf`, else of its nearest ancestor with one. `known` keeps the whole search linear."""
        walked: list[str] = []
        node: str | None = leaf
        time = 0.0
        while not time and node is not None and node in self._parents and node not in known:
            known[node] = 0.0
            walked.append(node)
            time = self._time_of(node)
            node = self._parents[node]
        time = time or known.get(node or "", 0.0)
        known.update(dict.fromkeys(walked, time))
        return time
