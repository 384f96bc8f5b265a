"""The frozen BM25 ranking (memory-agent.md §2.2), computed literally over a collection in memory."""

from collections import Counter
from collections.abc import Iterable, Mapping

from core.jsontext import canonical
from core.logarithm import log
from core.search.tokens import tokens
from core.text import cut_units

QUERY_UNITS = 1_000


def rank(query: str, documents: Iterable[tuple[str, str]]) -> list[tuple[str, float]]:
    """Ids with their scores, best first, of the (id, searchable text) that share a token with `query`.

    Equal scores are in code-point order of their ids. Document count, document frequency and average length are those
    of `documents`, so the caller filters them first.
    """
    counted: list[tuple[str, Counter[str], int]] = []
    total = 0
    for own_id, text in documents:
        found = tokens(text)
        counted.append((own_id, Counter(found), len(found)))
        total += len(found)
    if not total:
        return []
    average = total / len(counted)
    weights = [(term, idf(len(counted), sum(term in tf for _, tf, _ in counted))) for term in query_terms(query)]
    scored = [(own_id, score(weights, tf, length, average)) for own_id, tf, length in counted]
    return sorted((entry for entry in scored if entry[1] > 0), key=lambda entry: (-entry[1], entry[0]))


def query_terms(query: str) -> list[str]:
    """The distinct tokens of the lower-cased query's first 1,000 units, in the order of their first appearance."""
    return list(dict.fromkeys(tokens(cut_units(query.lower(), QUERY_UNITS))))


def idf(count: int, frequency: int) -> float:
    """The weight of a term that `frequency` of `count` documents hold."""
    return log(1 + (count - frequency + 0.5) / (frequency + 0.5))


def score(weights: Iterable[tuple[str, float]], tf: Mapping[str, int], length: int, average: float) -> float:
    """A document's score: terms summed in the order given, each evaluated left to right in doubles."""
    total = 0.0
    for term, weight in weights:
        n = tf.get(term, 0)
        if n:
            total += weight * (n * 2.2) / (n + 1.2 * (0.25 + 0.75 * length / average))
    return total


def searchable_text(record: Mapping[str, object]) -> str:
    """What of a record is ranked: title, content and its data as JSON, a line each (memory-agent.md §1.1)."""
    return f"{record['title']}\n{record['content']}\n{canonical(record.get('data', {}))}"
