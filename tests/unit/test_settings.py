"""Settings: each one is used, and an unknown one refuses to start (failure case B2)."""

import re
from pathlib import Path

import pytest

from core.settings import Settings, SettingsError, child_environment, load

ROOT = Path(__file__).parents[2]
SOURCES = "\n".join(
    path.read_text("utf-8")
    for part in ("api", "workers", "core")
    for path in sorted((ROOT / part).rglob("*.py"))
    if path != ROOT / "core" / "settings.py"
)
INSIDE = {"database_direct_url", "model_key_envs"}
"""Read by `Settings` itself, for `direct_url` and `key_envs`."""


@pytest.mark.parametrize("name", sorted(set(Settings.model_fields) - INSIDE))
def test_b2_every_setting_is_read_somewhere(name: str) -> None:
    assert re.search(rf"settings\.{name}\b|secret\(\s*\"{name}\"", SOURCES), f"{name} does nothing"


def test_b2_an_unknown_setting_refuses_to_start_and_the_near_name_is_told() -> None:
    with pytest.raises(SettingsError, match="did you mean MUNIMENT_LEASE_SECONDS"):
        load({"MUNIMENT_LEASE_SECOND": "3"})
    with pytest.raises(SettingsError, match="MUNIMENT_XYZZY is not a setting"):
        load({"MUNIMENT_XYZZY": "1"})


def test_a_value_out_of_range_names_its_variable() -> None:
    with pytest.raises(SettingsError, match="MUNIMENT_LEASE_SECONDS: "):
        load({"MUNIMENT_LEASE_SECONDS": "0"})


def test_a_value_of_the_environment_is_used_and_an_empty_one_is_not() -> None:
    assert load({"MUNIMENT_LEASE_SECONDS": "7", "MUNIMENT_SWEEP_SECONDS": ""}).lease_seconds == 7
    assert load({"MUNIMENT_SWEEP_SECONDS": ""}).sweep_seconds == Settings.model_fields["sweep_seconds"].default


def test_a_secret_that_is_missing_is_named_and_one_that_is_there_is_not_shown() -> None:
    with pytest.raises(SettingsError, match="MUNIMENT_DATABASE_URL is not set"):
        load({}).secret("database_url")
    settings = load({"MUNIMENT_DATABASE_URL": "postgresql://u:hunter2@h/d"})
    assert settings.secret("database_url") == settings.direct_url == "postgresql://u:hunter2@h/d"
    assert "hunter2" not in repr(settings)
    pooler, direct = "postgresql://pooler/d", "host=db dbname=d"
    assert load({"MUNIMENT_DATABASE_DIRECT_URL": direct}, database_url=pooler).direct_url == direct


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("MUNIMENT_DATABASE_URL", "db.example", "must begin with postgresql://"),
        ("MUNIMENT_REDIS_URL", "localhost:6379", "must begin with redis://"),
        ("MUNIMENT_POOL_SIZE", "many", "must be a whole number"),
        ("MUNIMENT_PREPARE", "perhaps", "must be true or false"),
        ("MUNIMENT_LEASE_SECONDS", "long", "must be a number"),
        ("MUNIMENT_LEASE_SECONDS", "0", "must be at least 1"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(name: str, value: str, told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load({name: value})
    assert refused.value.detail.startswith(f"{name}: {told}")
    assert refused.value.title == "A setting is wrong or missing"


def test_a_child_gets_no_setting_but_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUNIMENT_API_KEY", "secret")
    environment = child_environment(log="text")
    assert "MUNIMENT_API_KEY" not in environment
    assert environment["MUNIMENT_LOG"] == "text"


def test_a_models_key_is_read_when_it_is_used_and_only_from_a_listed_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load({"MUNIMENT_MODEL_KEY_ENVS": " JEV_KEY, OTHER_KEY,"})
    assert settings.key_envs == {"JEV_KEY", "OTHER_KEY"}
    monkeypatch.setenv("JEV_KEY", "canary")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    assert settings.model_key("JEV_KEY") == "canary"
    assert "canary" not in repr(settings)
    for name, why in (("AWS_SECRET_ACCESS_KEY", "not listed"), ("OTHER_KEY", "not set")):
        with pytest.raises(SettingsError, match=why) as refused:
            settings.model_key(name)
        assert "canary" not in refused.value.detail
    for wrong in ("two lines\n", " x", "é"):
        monkeypatch.setenv("JEV_KEY", wrong)
        with pytest.raises(SettingsError, match="holds what no key can hold"):
            settings.model_key("JEV_KEY")


def test_which_keys_are_held_is_told_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("GOOD", "canary"), ("EMPTY", ""), ("WRONG", " canary"), ("UNLISTED", "canary")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NONE", raising=False)
    assert load({"MUNIMENT_MODEL_KEY_ENVS": "WRONG,NONE,GOOD,EMPTY"}).keys_held() == ["GOOD"]
    assert load({}).keys_held() == []
