"""Profiles: what each kind takes, where it goes, what it costs, and what none may hold (failure case H19)."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from core.errors import InvalidRequest
from core.models.catalogue import parse_profile, read_file
from core.models.embedding import BUILTIN, Profile
from core.models.profiles import ModelProfile, parse_model
from core.settings import SettingsError

KEYS = frozenset({"TYPESAFE_API_KEY", "DEEPSEEK_API_KEY", "OPENAI_API_KEY"})
JEV: dict[str, Any] = {"kind": "jev", "model": "jev-1.13.0"}
DEEPSEEK: dict[str, Any] = {"kind": "deepseek", "model": "deepseek-flash"}
OPENAI: dict[str, Any] = {
    "kind": "openai", "model": "gpt-4.1-mini", "baseURL": "https://api.openai.com/v1", "keyEnv": "OPENAI_API_KEY",
}  # fmt: skip
LOCAL: dict[str, Any] = {"kind": "local", "model": "m", "baseURL": "http://127.0.0.1:8001/v1"}
SYSTEM_ONE: dict[str, Any] = {"kind": "systemone", "model": "m", "baseURL": "https://judge.example/v1", "priceIn": 0.05}


def parsed(base: dict[str, Any], **more: Any) -> ModelProfile:
    return parse_model("p", {name: value for name, value in {**base, **more}.items() if value is not ...}, KEYS)


def test_where_each_kind_goes_and_with_which_key() -> None:
    found = [parsed(base) for base in (JEV, DEEPSEEK, OPENAI, LOCAL, SYSTEM_ONE)]
    assert [(profile.endpoint, profile.key_env) for profile in found] == [
        ("https://api.typesafe.ai/v1/systemone", "TYPESAFE_API_KEY"),
        ("https://api.deepseek.com/chat/completions", "DEEPSEEK_API_KEY"),
        ("https://api.openai.com/v1/chat/completions", "OPENAI_API_KEY"),
        ("http://127.0.0.1:8001/v1/chat/completions", ""),
        ("https://judge.example/v1/systemone", ""),
    ]


def test_prices_are_nano_units_per_million_tokens() -> None:
    found = [parsed(base) for base in (JEV, DEEPSEEK, OPENAI, LOCAL, SYSTEM_ONE)]
    assert [(profile.currency, profile.price_in, profile.price_out) for profile in found] == [
        ("USD", 42_000_000, 0),
        ("CNY", 2_000_000_000, 8_000_000_000),
        ("USD", 400_000_000, 1_600_000_000),
        ("", 0, 0),
        ("USD", 50_000_000, 0),
    ]
    assert parsed(OPENAI, model="gpt-4o-mini").price_out == 600_000_000
    assert parsed(OPENAI, priceIn=0.1).price_in == 100_000_000
    assert parsed(OPENAI, priceIn=1e-10).price_in == 1  # rounded up: never too little


def test_a_system_one_endpoint_on_this_machine_is_unpaid_unless_it_has_a_price() -> None:
    here = {**SYSTEM_ONE, "baseURL": "http://localhost:9000/v1"}
    assert not parsed(here, priceIn=...).paid
    assert parsed(here).paid


def test_drills_have_a_circuit_of_their_own() -> None:
    drill = parsed(JEV, testEndpoint="http://127.0.0.1:9000/v1/systemone")
    assert drill.endpoint == "http://127.0.0.1:9000/v1/systemone"
    assert drill.key_env == ""
    assert (parsed(JEV).circuit, drill.circuit) == ("jev", "jev 127.0.0.1:9000")
    assert parsed(LOCAL).circuit != parsed(LOCAL, baseURL="http://127.0.0.1:8002/v1").circuit


@pytest.mark.parametrize(
    ("base", "more", "field"),
    [
        (JEV, {"kind": "mystery"}, "kind"),
        (JEV, {"modle": "x"}, "modle"),
        (JEV, {"model": "jev-latest"}, "model"),
        (JEV, {"model": ""}, "model"),
        (JEV, {"baseURL": "https://elsewhere.example"}, "baseURL"),
        (JEV, {"maxTokens": 5}, "maxTokens"),
        (JEV, {"thinking": True}, "thinking"),
        (JEV, {"priceIn": 1}, "priceIn"),
        (JEV, {"keyEnv": "AWS_SECRET_ACCESS_KEY"}, "keyEnv"),
        (JEV, {"testEndpoint": "https://127.0.0.1:1/x"}, "testEndpoint"),
        (JEV, {"testEndpoint": "http://10.0.0.5/x"}, "testEndpoint"),
        (DEEPSEEK, {"maxTokens": 16_385}, "maxTokens"),
        (DEEPSEEK, {"thinking": 1}, "thinking"),
        (OPENAI, {"baseURL": ...}, "baseURL"),
        (OPENAI, {"keyEnv": ...}, "keyEnv"),
        (OPENAI, {"model": "gpt-9"}, "priceIn"),
        (OPENAI, {"priceIn": -1}, "priceIn"),
        (OPENAI, {"testEndpoint": "http://127.0.0.1/x"}, "testEndpoint"),
        (LOCAL, {"baseURL": "https://models.example/v1"}, "baseURL"),
        (LOCAL, {"baseURL": "http://192.168.1.2:8001/v1"}, "baseURL"),
        (SYSTEM_ONE, {"priceIn": ...}, "priceIn"),
        (JEV, {"timeoutSeconds": 0}, "timeoutSeconds"),
        (JEV, {"timeoutSeconds": 1_801}, "timeoutSeconds"),
        (JEV, {"attemptTimeoutSeconds": 91}, "attemptTimeoutSeconds"),
        (JEV, {"timeoutSeconds": 10, "attemptTimeoutSeconds": 11}, "attemptTimeoutSeconds"),
        (JEV, {"maxAttempts": 11}, "maxAttempts"),
        (JEV, {"maxAttempts": 0}, "maxAttempts"),
    ],
)
def test_what_cannot_work_is_refused_naming_the_field(base: dict[str, Any], more: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parsed(base, **more)
    assert refused.value.fields[0].field == field


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest", "http://10.1.2.3/v1", "http://[fe80::1]/v1", "http://[::ffff:10.0.0.1]/v1",
        "http://0.0.0.0:8000/v1", "http://localhost.example/v1", "http://127.1/v1", "http://2130706433/v1",
        "http://127.0.0.1.nip.io/v1", "http://user:pw@127.0.0.1/v1", "https://key@api.example/v1", "ftp://127.0.0.1/v1",
        "file:///etc/passwd", "https:///v1", "https://host/v1?x=1", "https://host/v1#f", "https://ho st/v1", "//host/v1",
        "http://127.0.0.1:99999/v1", "http://[::1/v1", "https://h\u00f6st/v1",
    ],
)  # fmt: skip
def test_h19_addresses_that_no_request_is_sent_to(url: str) -> None:
    for base in (LOCAL, {**OPENAI, "baseURL": url}, {**SYSTEM_ONE, "baseURL": url}):
        with pytest.raises(InvalidRequest) as refused:
            parsed(base, baseURL=url)
        assert refused.value.fields[0].field == "baseURL"
    with pytest.raises(InvalidRequest):
        parsed(JEV, testEndpoint=url)
    with pytest.raises(InvalidRequest):
        parse_profile("e", {"kind": "ollama", "model": "m", "url": url}, KEYS)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/v1", "http://localhost:8001/v1", "http://[::1]:8001/v1", "http://127.9.9.9/v1"]
)
def test_the_loopback_is_this_machine(url: str) -> None:
    assert parsed(LOCAL, baseURL=url).endpoint == url + "/chat/completions"


def test_profiles_of_embeddings() -> None:
    assert parse_profile("b", {"kind": "builtin"}, KEYS) is BUILTIN
    made = parse_profile(
        "nomic", {"kind": "ollama", "url": "http://127.0.0.1:11434/", "model": "nomic", "queryPrefix": "q: "}, KEYS
    )  # fmt: skip
    assert made == Profile(kind="ollama", url="http://127.0.0.1:11434", model="nomic", query_prefix="q: ", name="nomic")
    assert isinstance(
        parse_profile("e", {"kind": "openai", "url": "https://h", "model": "m", "keyEnv": "OPENAI_API_KEY"}, KEYS),
        Profile,
    )
    for data, field in (
        ({"kind": "builtin", "url": "http://127.0.0.1"}, "url"),
        ({"kind": "ollama", "model": "m"}, "url"),
        ({"kind": "openai", "url": "https://h"}, "model"),
        ({"kind": "openai", "url": "https://h", "model": "m", "keyEnv": "HOME"}, "keyEnv"),
        ({"kind": "ollama", "url": "https://h", "model": "m", "dimensions": 0}, "dimensions"),
        ({"kind": "jev", "url": "https://h", "model": "m"}, "kind"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            parse_profile("e", data, KEYS)
        assert refused.value.fields[0].field == field


def test_the_operators_file(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    path.write_text(
        '{"judge": {"kind": "jev", "model": "jev-1.13.0", "grants": "*"},'
        ' "mini": {"kind": "local", "model": "m", "baseURL": "http://127.0.0.1/v1",'
        ' "grants": ["00000000-0000-0000-0000-000000000001"]}}'
    )
    found = read_file(path, KEYS)
    assert found["judge"].granted(UUID(int=9))
    assert [found["mini"].granted(UUID(int=n)) for n in (1, 2)] == [True, False]
    assert read_file(None, KEYS) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "must be an object"),
        ('{"j": {"kind": "jev", "model": "jev-1"}}', "profile j: grants: is required"),
        ('{"j": {"kind": "jev", "model": "jev-1", "grants": ["x"]}}', "profile j: grants"),
        ('{"j": {"kind": "jev", "grants": "*"}}', "profile j: model: is required"),
        ('{"J!": {"kind": "jev", "model": "jev-1", "grants": "*"}}', "profile J!: name"),
        ('{"builtin": {"kind": "builtin", "grants": "*"}}', "profile builtin: name"),
        ('{"j": {"kind": "jev", "model": "jev-1", "keyEnv": "HOME", "grants": "*"}}', "MUNIMENT_MODEL_KEY_ENVS"),
    ],
)
def test_a_file_that_is_wrong_refuses_to_start(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "models.json"
    path.write_text(text)
    with pytest.raises(SettingsError, match="MUNIMENT_MODELS") as refused:
        read_file(path, KEYS)
    assert why in refused.value.detail


def test_a_file_that_is_not_there_refuses_to_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        read_file(tmp_path / "none.json", KEYS)
