"""Names in a text, found by patterns alone (native.md §4.1): the same text always gives the same entities.

Two steps, in this order: patterns, then a list of technologies. The third step of the native memory, words that are known
as entities already, is taken on the question's side only (`words`): what a record holds must not depend on what else was
stored before it.
"""

import re

ENTITY_POINTS = 200
"""An entity is compared by this much of it."""
QUESTION_ENTITIES = 64
"""The most of a question that is looked up."""
LEAST_WORD = 4
"""A lower-case word of the question is taken for a name only from this length on: `go` is seldom the language."""

_RUN = re.compile(r"\w+", re.ASCII)
_CAMEL = re.compile(r"[A-Z][a-z0-9]+[A-Z][A-Za-z0-9]*", re.ASCII)
_ACRONYM = re.compile(r"[A-Z]{2,6}", re.ASCII)
_TOKEN_ENDS = re.compile(r"[\s\"'`()\[\]{}<>“”‘’«»]+")
_DOTTED = re.compile(r"\.(?<=[^\s.]\.)[A-Za-z0-9]", re.ASCII)
_PATH = re.compile(r"[\w~.@+/\\:-]+")
_EXTENSION = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9]{1,10}", re.ASCII)
_URL = re.compile(r"https?://[^\s<>\"'`()\[\]{}“”‘’«»《》「」『』]+", re.IGNORECASE)
_MENTION = re.compile(r"(?<![\w@.])@([A-Za-z_][A-Za-z0-9_-]*)", re.ASCII)
_MARKED = re.compile(r"《([^《》\n]{1,100})》|「([^「」\n]{1,100})」|『([^『』\n]{1,100})』")
_WORD = re.compile(r"[A-Za-z0-9]+", re.ASCII)
_SENTENCE_ENDS = ".,;:!?…"

_ORDINARY = (
    "AM AN AND ANY ARE AS AT BE BUT BY CAN DID DO FOR GET GO GOT HAD HAS HAVE HE HER HIM HIS HOW IF IN IS IT ITS ME MY NEW "
    "NO NOT NOW OF OFF OH OK ON ONE OR OUR OUT PM SAW SAY SEE SHE SO THE THEY TO TOO TWO UP US USE WAS WE WHO WHY WILL YES "
    "YOU YOUR"
)
_NO_ACRONYMS = frozenset(_ORDINARY.split())
"""Ordinary words that someone may shout."""

_TERMS = (
    # languages
    "Python Java Kotlin Scala Go Golang Rust Ruby PHP Perl Swift Haskell Erlang Elixir Clojure Dart Lua Julia Zig Bash "
    "COBOL Fortran OCaml JavaScript TypeScript "
    # frameworks
    "React Angular Vue Svelte Nextjs Nuxt Express Django Flask FastAPI Rails Laravel Spring Electron Flutter jQuery Nodejs "
    "Deno Bun Vite Webpack "
    # databases and queues
    "Postgres PostgreSQL MySQL MariaDB SQLite Oracle MongoDB Redis Valkey Cassandra Elasticsearch ClickHouse DuckDB "
    "Snowflake BigQuery Neo4j Kafka RabbitMQ pgvector "
    # infrastructure
    "Docker Kubernetes Terraform Ansible Jenkins GitHub GitLab Linux Ubuntu Debian Windows macOS Nginx Apache Prometheus "
    "Grafana Helm Azure Heroku Cloudflare Vercel "
    # models and their tools
    "ChatGPT Claude Gemini Llama Mistral Ollama LangChain PyTorch TensorFlow Whisper "
    # formats
    "JSON YAML TOML Markdown Parquet Protobuf GraphQL OAuth"
)
_TECHNOLOGIES = frozenset(_TERMS.split())


def entities(text: str) -> list[str]:
    """The entities of `text` as keys (lower case, at most 200 points), each once, in the order of their patterns."""
    # A bulk write is limited by this: most words are lower-case but for their first letter, and few texts name a file.
    runs = _RUN.findall(text)
    upper = [run for run in runs if not run.islower()]
    odd = [run for run in upper if not run[1:].islower()]
    found = [run for run in odd if _CAMEL.fullmatch(run)]
    found += [run for run in odd if run not in _NO_ACRONYMS and _ACRONYM.fullmatch(run)]
    if _DOTTED.search(text):
        dotted = [word for word in text.split() if "." in word]
        tokens = (_trimmed(token) for word in dotted if "." in word[1:-1] for token in _TOKEN_ENDS.split(word))
        found += [token for token in tokens if _is_path(token)]
    if "://" in text:
        found += [_trimmed(match[0]) for match in _URL.finditer(text)]
    if "@" in text:
        found += [match[1] for match in _MENTION.finditer(text)]
    if not text.isascii():
        found += [(match[1] or match[2] or match[3]).strip() for match in _MARKED.finditer(text)]
    every = _WORD.findall(text) if "_" in text else runs
    if not _TECHNOLOGIES.isdisjoint(every):
        found += [word for word in every if word in _TECHNOLOGIES]
    return list(dict.fromkeys(key(entity) for entity in found if entity))


def key(entity: str) -> str:
    """What two spellings of one entity have in common."""
    return entity.lower()[:ENTITY_POINTS]


def words(text: str) -> list[str]:
    """Keys of the question's words that are entities if the store knows them as such: it filters, it never invents."""
    known = (
        word for word in _WORD.findall(text) if len(word) >= (2 if word[0].isupper() else LEAST_WORD)
    )  # fmt: skip
    return list(dict.fromkeys(key(word) for word in known))


def _trimmed(token: str) -> str:
    return token.rstrip(_SENTENCE_ENDS)


def _is_path(token: str) -> bool:
    """A file's name, with or without folders: an extension with a letter in it, and something before that."""
    stem, dot, extension = token.rpartition(".")
    return (
        bool(dot)
        and "://" not in token
        and len(stem.strip("./")) > 1
        and _EXTENSION.fullmatch(extension) is not None
        and _PATH.fullmatch(token) is not None
    )
