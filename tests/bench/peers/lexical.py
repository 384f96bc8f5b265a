"""Other programs' lexical search over the same records, by the same words: the frozen ranking's tokens of both.

Each index is in this process's memory and lives in one thread, the peers' best case: no durability, no tenants, no
filters by scope or revision. Ids are record numbers.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, Protocol

import bm25s
import numpy as np
import tantivy

from core.search.tokens import tokens

Tokens = list[str]


class LexicalPeer(Protocol):
    """`best` gives the k best record numbers for a query, best first."""

    name: str

    def build(self, documents: Sequence[Tokens]) -> None: ...

    def best(self, query: str, k: int) -> list[int]: ...


class Fts5:
    """SQLite's FTS5 with its own bm25(), k1 = 1.2 and b = 0.75, without contents."""

    name = f"SQLite {sqlite3.sqlite_version} FTS5"

    def build(self, documents: Sequence[Tokens]) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute(
            "create virtual table records using fts5(words, content='', tokenize=\"unicode61 tokenchars '-_:'\")"
        )
        rows = ((number, " ".join(words)) for number, words in enumerate(documents))
        self._connection.executemany("insert into records (rowid, words) values (?, ?)", rows)
        self._connection.execute("insert into records (records) values ('optimize')")
        self._connection.commit()

    def best(self, query: str, k: int) -> list[int]:
        wanted = " OR ".join(f'"{word}"' for word in dict.fromkeys(tokens(query)))
        statement = "select rowid from records where records match ? order by rank limit ?"
        return [row[0] for row in self._connection.execute(statement, (wanted, k))]


class Tantivy:
    """tantivy-py with an index in memory, words split at spaces, no positions; its k1 = 1.2, b = 0.75, rounded lengths."""

    name = "tantivy"

    def build(self, documents: Sequence[Tokens]) -> None:
        builder: Any = tantivy.SchemaBuilder()
        builder.add_text_field("words", tokenizer_name="spaces", index_option="freq")
        builder.add_unsigned_field("number", stored=True)
        self._schema = builder.build()
        index: Any = tantivy.Index(self._schema)
        index.register_tokenizer("spaces", tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build())
        writer = index.writer(256 * 1024 * 1024, 1)
        for number, words in enumerate(documents):
            writer.add_document(tantivy.Document(words=" ".join(words), number=number))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        self._searcher: Any = index.searcher()

    def best(self, query: str, k: int) -> list[int]:
        words = dict.fromkeys(tokens(query))
        clauses = [
            (tantivy.Occur.Should, tantivy.Query.term_query(self._schema, "words", word, index_option="freq"))
            for word in words
        ]
        hits = self._searcher.search(tantivy.Query.boolean_query(clauses), k, count=False).hits
        return [self._searcher.doc(address)["number"][0] for _, address in hits]


class Bm25s:
    """bm25s, the Lucene form of BM25, which ranks as the frozen one does but in 32-bit sums made beforehand."""

    name = "bm25s"

    def build(self, documents: Sequence[Tokens]) -> None:
        self._index: Any = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
        self._index.index(list(documents), show_progress=False)

    def best(self, query: str, k: int) -> list[int]:
        known = self._index.vocab_dict
        words = [word for word in dict.fromkeys(tokens(query)) if word in known]
        if not words:
            return []
        found, _ = self._index.retrieve([words], k=k, show_progress=False)
        return np.asarray(found)[0].tolist()


PEERS: tuple[type[LexicalPeer], ...] = (Fts5, Tantivy, Bm25s)
