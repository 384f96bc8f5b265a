"""compose.yaml, the image and the servers' configurations fit the program: commands, settings, files."""

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import redis
import typer
import yaml

from api.cli.main import app
from core.settings import PREFIX, Settings, load
from tests.services import short_folder
from workers.embedded import carriers
from workers.embedded.ports import LOOPBACK, free_port
from workers.queues import GROUPS

ROOT = Path(__file__).parents[2]
OURS = {"migrate", "api", "relay", "exporter", "cli", *GROUPS}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def test_every_process_of_a_fleet_has_a_service(compose: dict[str, Any]) -> None:
    assert compose["services"].keys() == OURS | {"postgres", "valkey", "prometheus"}
    for name in GROUPS:
        assert compose["services"][name]["command"] == ["worker", name]


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_service_runs_a_command_there_is(compose: dict[str, Any], name: str) -> None:
    command = typer.main.get_command(app)
    words = [re.sub(r"\$\{\w+:\?\}", "x", word) for word in compose["services"][name]["command"]]
    assert words[0] in command.commands, words  # pyright: ignore[reportAttributeAccessIssue]
    sub = command.commands[words[0]]  # pyright: ignore[reportAttributeAccessIssue]
    options = [word for word in words[1:] if not word.startswith("/")]
    if "--passwords" in options:
        options.insert(options.index("--passwords") + 1, "/run/passwords.json")
    sub.make_context(words[0], options, resilient_parsing=False).close()


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_service_sets_only_settings_there_are(compose: dict[str, Any], name: str) -> None:
    environment: dict[str, str] = compose["services"][name]["environment"]
    settings = {key: re.sub(r"\$\{\w+(:\?|:-)\}", "x", value) for key, value in environment.items()}
    loaded = load({key: value for key, value in settings.items() if key.startswith(PREFIX)})
    assert loaded.secret("database_url").startswith("postgresql://muniment_")
    role = {"relay": "relay", "exporter": "exporter", "migrate": "owner", "cli": "owner"}.get(name, "app")
    assert loaded.secret("database_url").startswith(f"postgresql://muniment_{role}:")


def test_no_secret_is_written_down(compose: dict[str, Any]) -> None:
    text = (ROOT / "compose.yaml").read_text()
    variables = set(re.findall(r"\$\{(\w+)", text))
    example = (ROOT / "deploy/compose.env.example").read_text()
    assert {name for name in variables if name.endswith("PASSWORD")} == set(re.findall(r"^(\w+)=$", example, re.M))
    assert not re.findall(r"://\w*:(?!\$\{)[^/@\s]+@", text), "a password in an address"


def test_services_are_checked_wait_for_each_other_and_mount_what_exists(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert name in {"migrate", "cli"} or service["healthcheck"]["test"], name
        assert set(service.get("depends_on", {})) <= compose["services"].keys()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (ROOT / source).is_file(), volume


def test_prometheus_scrapes_the_services_on_their_ports(compose: dict[str, Any]) -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = {
        target for job in config["scrape_configs"] for entry in job["static_configs"] for target in entry["targets"]
    }
    expected = {"exporter:9420", "api:8421", "relay:9421", *(f"{group}:9421" for group in GROUPS)}
    assert targets == expected
    for target in targets:
        name, port = target.split(":")
        assert f":{port}" in " ".join(map(str, compose["services"][name]["environment"].values())), target


def test_the_image_has_one_entry_point_a_user_and_the_licences() -> None:
    text = (ROOT / "deploy/Dockerfile").read_text()
    stages = text.split("\nFROM ")
    last = stages[-1]
    assert re.search(r"^USER (?!0\b|root\b)\S+$", last, re.M)
    assert 'ENTRYPOINT ["muniment"]' in last
    for name in ("LICENSE", "LICENSE.memory-agent", "LICENSE.v8"):
        assert re.search(rf"^COPY .*\b{re.escape(name)} .*/licenses/$", last, re.M), name
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.M):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source


def test_a_server_takes_the_redis_configuration() -> None:
    carrier = carriers.find(carriers.VALKEY)
    port = free_port()
    with short_folder() as folder:
        command = [
            str(carrier.bin / "valkey-server"), str(ROOT / "deploy/redis/valkey.conf"),
            "--port", str(port), "--bind", LOOPBACK, "--dir", str(folder),
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with redis.Redis(port=port, socket_timeout=5) as client:
                facts = _info(client, process)
        finally:
            process.terminate()
            process.wait(20)
    assert facts["maxmemory_policy"] == "noeviction"
    assert facts["aof_enabled"] == 1


def _info(client: Any, process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while True:
        try:
            return client.info()
        except redis.RedisError:
            assert process.poll() is None, "it does not start with this configuration"
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_the_table_of_settings_is_complete() -> None:
    text = (ROOT / "deploy/docs/operations.md").read_text()
    rows = dict(re.findall(r"^\| `MUNIMENT_(\w+)` \| (.*?) \|", text, re.M))
    expected = {name.upper(): shown(field.default) for name, field in Settings.model_fields.items()}
    assert rows == expected


def shown(default: object) -> str:
    """A default as the table writes it."""
    if isinstance(default, bool):
        return str(int(default))
    if default is None or default == {}:
        return "–"
    text = default.get_secret_value() if hasattr(default, "get_secret_value") else str(default)  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(default, float):
        text = f"{default:g}"
    return f"`{text}`" if text else "–"
