"""A store's configuration: every refusal names its field, defaults come key by key, the hash is the contract's."""

import hashlib
from typing import Any

import pytest
import rfc8785

from core.errors import InvalidRequest
from core.models import builtin
from core.models.catalogue import Named
from core.models.embedding import Profile
from core.models.profiles import ModelProfile
from core.tenants.config import FLAGS, LAYERED, ROUTES, effective, parse_config, policy_hash

POLICY = dict.fromkeys(FLAGS, False)


@pytest.fixture(autouse=True)
def no_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "installed", lambda: False)


@pytest.fixture
def embedding(no_embedding: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "installed", lambda: True)


REFUSED = [
    ([], "body"),
    ("x", "body"),
    ({"versoin": 1}, "versoin"),
    ({"version": 2}, "version"),
    ({"version": True}, "version"),
    ({"version": 1.0}, "version"),
    ({"strategy": "best"}, "strategy"),
    ({"strategy": "memory-agent/v1"}, "strategy"),
    *[({"policy": {flag: True}}, f"policy.{flag}") for flag in FLAGS],
    ({"policy": {"planing": False}}, "policy.planing"),
    ({"policy": {"planning": 0}}, "policy.planning"),
    ({"planner": "cheap"}, "planner"),
    ({"judge": "jev"}, "judge"),
    ({"judge": 5}, "judge"),
    ({"judge": {"kind": "jev", "model": "jev-latest", "keyEnv": "AWS_SECRET"}}, "judge"),
    ({"consolidator": "big"}, "consolidator"),
    ({"embedding": "builtin"}, "embedding"),
    ({"embedding": "nomic"}, "embedding"),
    ({"embedding": {"kind": "ollama", "url": "http://127.0.0.1:1"}}, "embedding"),
    ({"index": {"version": 3}}, "index.version"),
    *[({"index": {"version": 1, route: True}}, f"index.{route}") for route in sorted(LAYERED)],
    ({"index": {"lexcal": True}}, "index.lexcal"),
    ({"view": {"maxItems": 0}}, "view.maxItems"),
    ({"view": {"maxItems": 17}}, "view.maxItems"),
    ({"view": {"maxItems": 8.0}}, "view.maxItems"),
    ({"view": {"maxItems": "8"}}, "view.maxItems"),
    ({"view": {"order": "rank"}}, "view.order"),
    ({"view": {"max_items": 8}}, "view.max_items"),
    ({"consolidation": {"mode": "timelines"}}, "consolidation"),
    ({"budgets": {"jev": -5}}, "budgets"),
    ({"budgets": {"cheap": 5}}, "budgets"),
    ({"modelCache": "run-1"}, "modelCache"),
    ({"budgetFile": "x.db"}, "budgetFile"),
]


@pytest.mark.parametrize(("body", "field"), REFUSED)
def test_what_cannot_work_is_refused_naming_the_field(body: object, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_config(body)
    problem = refused.value.fields[0]
    assert problem.field == field
    assert problem.message
    assert field in refused.value.detail


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_config({"strategy": "memory-agent/v1", "judge": "j", "index": {"relations": True, "supersedes": True}})
    assert [problem.field for problem in refused.value.fields] == [
        "strategy",
        "judge",
        "index.relations",
        "index.supersedes",
    ]


def test_the_model_cache_needs_the_operator() -> None:
    config = parse_config({"modelCache": "run-1"}, allow_model_cache=True)
    assert effective(config)["modelCache"] == "run-1"
    with pytest.raises(InvalidRequest, match="modelCache"):
        parse_config({"modelCache": "../x"}, allow_model_cache=True)


def test_a_store_made_without_a_configuration_has_the_defaults_written_out() -> None:
    assert effective(None) == {
        "version": 1,
        "strategy": "simple",
        "policy": POLICY,
        "index": {"version": 2, "lexical": True, "entities": True, "temporal": True},
        "view": {"maxItems": 16, "order": "time"},
    }


def test_an_empty_configuration_is_the_original_retrieval_by_rank() -> None:
    assert effective(parse_config({})) == {
        "version": 1,
        "strategy": "simple",
        "policy": POLICY,
        "view": {"maxItems": 16, "order": ""},
    }


def test_defaults_come_key_by_key() -> None:
    config = parse_config({"view": {"maxItems": 4}, "policy": {"looping": False}, "index": {"lexical": True}})
    assert effective(config)["view"] == {"maxItems": 4, "order": ""}
    assert effective(config)["policy"] == POLICY
    assert effective(config)["index"] == {"version": 1, "lexical": True}


def test_every_route_that_needs_no_layer_can_be_turned_on() -> None:
    index = {"version": 2, "lexical": True} | {route: True for route in ROUTES if route not in LAYERED}
    assert effective(parse_config({"index": index}))["index"] == index


def test_the_effective_configuration_is_accepted_again_and_stays_the_same() -> None:
    settled = effective(parse_config({"view": {"order": "time"}, "index": {"version": 1, "lexical": True}}))
    assert effective(parse_config(settled)) == settled


def test_the_policy_hash_is_that_of_the_canonical_form() -> None:
    settled = effective(None)
    assert policy_hash(settled) == hashlib.sha256(rfc8785.dumps(settled)).hexdigest()


def test_the_policy_hash_leaves_out_what_changes_no_answer() -> None:
    plain = effective(parse_config({}))
    hashed = policy_hash(plain)
    without_order = {**plain, "view": {"maxItems": 16}}
    assert hashed == hashlib.sha256(rfc8785.dumps(without_order)).hexdigest()
    assert policy_hash({**plain, "modelCache": "a", "budgets": {"jev": 1}}) == hashed
    slow, fast = ({**plain, "judge": {"kind": "jev", "timeoutSeconds": n}} for n in (90, 5))
    assert policy_hash(slow) == policy_hash(fast) != hashed
    assert policy_hash({**plain, "view": {"maxItems": 15, "order": ""}}) != hashed
    assert policy_hash({**plain, "view": {"maxItems": 16, "order": "time"}}) != hashed


@pytest.mark.usefixtures("embedding")
def test_the_built_in_embedding_is_the_default_where_it_is_installed() -> None:
    for config in (None, parse_config({}), parse_config({"embedding": "builtin"})):
        assert effective(config)["embedding"] == "builtin"
    none = effective(parse_config({"embedding": None}))
    assert none["embedding"] is None
    assert effective(parse_config(none)) == none
    with pytest.raises(InvalidRequest, match="no profile 'nomic' is granted"):
        parse_config({"embedding": "nomic"})


PROFILES: dict[str, Any] = {
    "jev": ModelProfile("jev", "jev", "jev-1.13.0", "https://h"),
    "writer": ModelProfile("writer", "local", "m", "http://127.0.0.1"),
    "nomic": Profile("ollama", "http://127.0.0.1", "nomic", name="nomic"),
}


def granted(named: Named) -> Any:
    return PROFILES.get(str(named))


def test_a_granted_profile_may_be_named_where_it_can_do_the_work() -> None:
    named = {"planner": "writer", "judge": "jev", "consolidator": "writer", "embedding": "nomic"}
    settled = effective(parse_config(named, find=granted))
    assert {role: settled[role] for role in named} == named
    assert effective(parse_config(settled, find=granted)) == settled
    assert effective(parse_config({"judge": "writer"}, find=granted))["judge"] == "writer"  # it can stand in
    for role, name in (("planner", "jev"), ("consolidator", "jev"), ("judge", "nomic"), ("embedding", "jev")):
        with pytest.raises(InvalidRequest, match=r"must be|must complete") as refused:
            parse_config({role: name}, find=granted)
        assert refused.value.fields[0].field == role


def test_an_embedding_that_is_not_installed_says_what_to_install() -> None:
    assert "embedding" not in effective(None)
    with pytest.raises(InvalidRequest, match=r'pip install "muniment\[embeddings\]"'):
        parse_config({"embedding": "builtin"})
