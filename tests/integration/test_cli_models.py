"""`muniment models` on a database of its own: profiles, grants, recorded replies, and what is refused."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from core.ids import uuid7
from core.models.catalogue import granted
from tests.cli import environment, invoke
from tests.conftest import TestDatabase
from tests.rows import execute

CANARY = "canary-52c81e"
JUDGE: dict[str, Any] = {"kind": "jev", "model": "jev-1.13.0", "keyEnv": "JEV_KEY"}
WRITER: dict[str, Any] = {"kind": "local", "model": "m", "baseURL": "http://127.0.0.1:8001/v1"}


@pytest.fixture
def env(database: TestDatabase, tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "models.json"
    file.write_text(json.dumps({"filed": {**WRITER, "grants": "*"}}))
    given = environment(database_url=database.dsn("owner"), models=str(file), model_key_envs="JEV_KEY")
    return {**given, "JEV_KEY": CANARY}


def run(env: dict[str, str], *arguments: str, stdin: object = "", status: int = 0) -> str:
    """What it prints, or what it says when it ends with another `status`; never the key."""
    done = invoke("models", *arguments, stdin=stdin if isinstance(stdin, str) else json.dumps(stdin), env=env)
    assert done.returncode == status, done.stdout + done.stderr
    assert CANARY not in done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def names(database: TestDatabase, tenant: UUID, *profiles: str) -> list[str]:
    """Those that the tenant may name."""
    with database.app.tenant(tenant) as tx:
        return [name for name in profiles if granted(tx, {}, tenant, name, {"JEV_KEY"})]


def made(env: dict[str, str], name: str) -> UUID:
    done = invoke("tenants", "create", name, env=env)
    return UUID(json.loads(done.stdout)["id"])


def test_profiles_are_set_listed_and_deleted(env: dict[str, str], database: TestDatabase) -> None:
    acme, other = made(env, "acme"), made(env, "other")
    shown = json.loads(run(env, "set", "writer", stdin=WRITER))
    assert (shown["profile"], shown["grants"], shown["source"]) == (WRITER, "*", "table")
    shown = json.loads(run(env, "set", "judge", "--grant", "acme", "--grant", str(other), stdin=JUDGE))
    assert shown["grants"] == sorted([str(acme), str(other)])
    listed = json.loads(run(env, "list", "--json"))["items"]
    assert [(one["name"], one["source"], one["kind"]) for one in listed] == [
        ("filed", "file", "local"), ("judge", "table", "jev"), ("writer", "table", "local"),
    ]  # fmt: skip
    assert "jev-1.13.0" in run(env, "list")
    run(env, "delete", "writer")
    assert [one["name"] for one in json.loads(run(env, "list", "--json"))["items"]] == ["filed", "judge"]
    assert names(database, acme, "judge", "writer") == ["judge"]


def test_grants_are_given_and_taken_one_by_one(env: dict[str, str], database: TestDatabase) -> None:
    acme, other = made(env, "acme"), made(env, "other")
    run(env, "set", "judge", "--grant", "acme", stdin=JUDGE)
    assert json.loads(run(env, "grant", "judge", "other"))["grants"] == sorted([str(acme), str(other)])
    assert json.loads(run(env, "grant", "judge", "other"))["grants"] == sorted([str(acme), str(other)])
    assert json.loads(run(env, "revoke", "judge", "acme"))["grants"] == [str(other)]
    assert (names(database, acme, "judge"), names(database, other, "judge")) == ([], ["judge"])


def test_another_definition_widens_no_grant(env: dict[str, str], database: TestDatabase) -> None:
    acme, other = made(env, "acme"), made(env, "other")
    run(env, "set", "judge", "--grant", "acme", stdin=JUDGE)
    changed = json.loads(run(env, "set", "judge", stdin={**JUDGE, "maxAttempts": 2}))
    assert (changed["grants"], changed["profile"]["maxAttempts"]) == ([str(acme)], 2)
    run(env, "revoke", "judge", "acme")
    assert json.loads(run(env, "set", "judge", stdin=JUDGE))["grants"] == []
    assert names(database, acme, "judge") == []
    assert json.loads(run(env, "set", "judge", "--all", stdin=JUDGE))["grants"] == "*"
    assert names(database, other, "judge") == ["judge"]
    assert json.loads(run(env, "grant", "judge", "acme"))["grants"] == "*"
    assert "granted to all tenants" in run(env, "revoke", "judge", "acme", status=1)
    assert "--all" in run(env, "set", "judge", "--all", "--grant", "acme", stdin=JUDGE, status=2)


@pytest.mark.parametrize(
    ("definition", "field"),
    [
        ({**JUDGE, "keyEnv": "AWS_SECRET_ACCESS_KEY"}, "profile.keyEnv: AWS_SECRET_ACCESS_KEY is not listed"),
        ({**JUDGE, "key": CANARY[:6]}, "profile.key"),
        ({**JUDGE, "kind": "gpt"}, "profile.kind"),
        ({**JUDGE, "maxAttempts": 99}, "profile.maxAttempts"),
        ({**WRITER, "baseURL": "http://169.254.169.254/v1"}, "profile.baseURL"),
        ({"kind": "openai", "model": "m", "url": "https://x.example", "dimensions": 0}, "profile.dimensions"),
    ],
)
def test_what_is_wrong_with_a_profile_is_named(env: dict[str, str], definition: dict[str, Any], field: str) -> None:
    assert field in run(env, "set", "p", stdin=definition, status=1)
    assert [one["name"] for one in json.loads(run(env, "list", "--json"))["items"]] == ["filed"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "standard input: is not JSON at byte 1: it breaks off"),
        ("[" * 100_000, "standard input: is nested too deeply"),
        ('{"model": "a", "model": "b"}', "model: is given twice"),
        ('{"kind": "local", "model": "a\\u0000"}', "profile.model: holds a NUL character (U+0000) at character 1"),
        ('{"kind": "local", "model": "a\\ud800"}', "profile.model: holds a lone surrogate (U+D800) at character 1"),
        ('{"url": "\\u0000"}', "profile.url: holds a NUL character"),
        ('{"a\\ud800": 1}', "profile.a\\ud800: holds a lone surrogate (U+D800) at character 1"),
    ],
)
def test_what_is_no_json_or_no_text_is_told_in_one_line(env: dict[str, str], text: str, said: str) -> None:
    (line,) = run(env, "set", "judge", stdin=text, status=1).splitlines()
    assert said in line


def test_what_is_not_there_or_not_theirs_to_change_is_told(env: dict[str, str]) -> None:
    acme = str(made(env, "acme"))
    assert "no such profile" in run(env, "delete", "nothing", status=1)
    assert "no such profile" in run(env, "grant", "nothing", acme, status=1)
    assert "no such profile" in run(env, "revoke", "nothing", acme, status=1)
    assert "no tenant 'nobody'" in run(env, "set", "judge", "--grant", "nobody", stdin=JUDGE, status=1)
    run(env, "set", "judge", stdin=JUDGE)
    assert "no such tenant" in run(env, "grant", "judge", str(uuid7()), status=1)
    for command in (("set", "filed"), ("grant", "filed", acme), ("revoke", "filed", acme)):
        assert "of the file MUNIMENT_MODELS" in run(env, *command, stdin=WRITER, status=1)
    assert "builtin" in run(env, "set", "builtin", stdin=WRITER, status=1)
    assert "name: must be" in run(env, "set", "Not A Name", stdin=WRITER, status=1)


def test_a_profile_that_a_store_names_is_not_deleted(env: dict[str, str], database: TestDatabase, tenant: UUID) -> None:
    run(env, "set", "writer", stdin=WRITER)
    execute(
        database.admin, 'update stores set config = config || \'{"planner": "writer"}\' where tenant_id = %s', tenant
    )
    assert f"journal of tenant {tenant}" in run(env, "delete", "writer", status=1)


def test_recorded_replies_go_to_a_file_and_back(
    env: dict[str, str], database: TestDatabase, tenant: UUID, tmp_path: Path
) -> None:
    with database.app.tenant(tenant) as tx:
        for n in range(3):
            tx.run(
                "record_reply", tenant=tenant, cache="eval", key=bytes([n]) * 32, provider="jev", reply=b"{}", cost=n
            )
    exported = run(env, "cache", "export", str(tenant), "eval")
    assert len(exported.splitlines()) == 3
    file = tmp_path / "replies"
    file.write_text(exported)
    run(env, "cache", "clear", str(tenant), "eval")
    assert run(env, "cache", "export", str(tenant), "eval") == ""
    run(env, "cache", "import", str(tenant), "eval", str(file))
    assert run(env, "cache", "export", str(tenant), "eval") == exported
    file.write_text(exported.splitlines()[0] + "\n{}\n")
    assert "line 2: is no entry" in run(env, "cache", "import", str(tenant), "other", str(file), status=1)
    assert run(env, "cache", "export", str(tenant), "other") == "", "all or nothing"
    assert "FILE" in run(env, "cache", "import", str(tenant), "other", str(tmp_path / "none"), status=2)
