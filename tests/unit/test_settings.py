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
INSIDE = {"database_direct_url"}
"""Read by `Settings` itself, for `direct_url`."""


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
