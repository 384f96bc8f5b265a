"""Every test that deploy/docs/failure-cases.md names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tests_of_the_table_exist() -> None:
    text = (ROOT / "deploy" / "docs" / "failure-cases.md").read_text("utf-8")
    file = ""
    named = 0
    for path, test in re.findall(r"`(tests/[\w/]+\.py)?(?:::(\w+))?`", text):
        file = path or file
        if not file or not (path or test):
            continue
        source = (ROOT / file).read_text("utf-8")
        assert not test or f"def {test}(" in source, f"{file} has no {test}"
        named += 1
    assert named > 50
