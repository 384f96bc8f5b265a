"""The embedded stack: what it starts, keeps, mends and refuses."""

import json
import os
import signal
import socket
import stat
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.store.database import Database
from tests.cli import all_gone, environment, eventually, invoke
from tests.services import short_folder
from workers.embedded import deaths
from workers.embedded import stack as stacks
from workers.embedded.datadir import DataDir
from workers.embedded.errors import CannotStart
from workers.embedded.stack import API_PORT, EXPORTER_PORT, Stack
from workers.queues import GROUPS


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with short_folder() as folder, Stack(folder / "data", durable=False) as running:
        yield running


def ask(stack: Stack, path: str, key: str, body: dict | None = None, wait: int = 30) -> dict:
    request = urllib.request.Request(
        f"{stack.url}/v1{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Prefer": f"wait={wait}"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=40) as answer:
        return json.load(answer)


def test_everything_runs_under_its_name_and_a_write_can_be_read(stack: Stack) -> None:
    names = [process.name for process in stack.processes]
    assert names == ["postgres", "valkey", "api", *GROUPS, "relay", "exporter"]
    assert len({process.pid for process in stack.processes}) == len(names)
    written = ask(stack, "/stores/journal/memories", stack.key, {"text": "The owl lives in the mill."})
    view = ask(stack, "/stores/journal/reads", stack.key, {"question": "Where does the owl live?"})
    assert written["document"]["id"] in [item["parent"]["id"] for item in view["items"]]


def test_the_operator_key_reaches_the_admin_routes(stack: Stack) -> None:
    tenants = ask(stack, "/admin/tenants", stack.operator_key)["items"]
    assert [tenant["name"] for tenant in tenants] == ["default"]


def test_commands_find_what_the_stack_was_told_of_models() -> None:
    """In another terminal than that of `up`, without its variables; what is set there holds."""
    with short_folder() as folder:
        given = {"model_key_envs": "JEV_KEY", "read_deadline_seconds": "40"}
        with Stack(folder / "data", durable=False, groups=(), settings=given):
            env = environment(data_dir=str(folder / "data"))
            definition = json.dumps({"kind": "jev", "model": "jev-1.13.0", "keyEnv": "JEV_KEY"})
            made = invoke("models", "set", "judge", stdin=definition, env=env)
            assert made.returncode == 0, made.stderr
            env["MUNIMENT_MODEL_KEY_ENVS"] = "OTHER_KEY"
            refused = invoke("models", "set", "judge", stdin=definition, env=env)
            assert "JEV_KEY is not listed" in refused.stderr
        assert DataDir(folder / "data").running() is None


def test_secrets_are_readable_by_their_owner_only(stack: Stack) -> None:
    folder = stack.data.path
    for name in ("key", "operator-key", "passwords.json", "running.json", "postgres/password", "valkey/password"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE((folder / "logs").stat().st_mode) == 0o700


def test_no_secret_is_in_a_log_or_on_a_command_line(stack: Stack) -> None:
    secrets = [stack.key, stack.operator_key, stack.postgres.running.folder.password]
    secrets += json.loads((stack.data.path / "passwords.json").read_text()).values()
    shown = [process.log.read_text() for process in stack.processes]
    if Path("/proc/self").exists():
        shown += [Path(f"/proc/{process.pid}/cmdline").read_text() for process in stack.processes]
    for secret in secrets:
        assert secret
        assert not any(secret in text for text in shown)


def test_the_bulk_worker_gives_way_to_the_others(stack: Stack) -> None:
    assert os.getpriority(os.PRIO_PROCESS, stack.pid("bulk")) > os.getpriority(os.PRIO_PROCESS, stack.pid("fast"))


def test_another_process_finds_the_running_stack_and_may_not_start_a_second(stack: Stack) -> None:
    running = DataDir(stack.data.path).running()
    assert running is not None
    assert (running.pid, running.url) == (os.getpid(), stack.url)
    with pytest.raises(CannotStart, match=rf"already runs on .*process {os.getpid()}"):
        Stack(stack.data.path).start()
    assert len(stack.processes) == 4 + len(GROUPS) + 1


def news_until_it_runs_again(stack: Stack, name: str, before: int) -> list[str]:
    news: list[str] = []

    def runs() -> bool:
        news.extend(stack.tend())
        return any(process.name == name and process.pid != before for process in stack.processes)

    assert eventually(runs)
    stack.await_ready()
    return news


def test_a_process_that_dies_is_started_again_and_said_so(stack: Stack) -> None:
    before = stack.pid("fast")
    os.kill(before, signal.SIGKILL)
    assert eventually(lambda: all(process.pid != before for process in stack.processes))
    news = news_until_it_runs_again(stack, "fast", before)
    assert news == [
        f"fast (process {before}) was ended by SIGKILL; it starts again in 0.5 s",
        f"fast runs again (process {stack.pid('fast')})",
    ]
    assert ask(stack, "/stores/journal/memories", stack.key, {"text": "still here"})["revision"] > 0


def test_servers_that_die_come_back_at_their_addresses() -> None:
    with short_folder() as folder, Stack(folder / "data", durable=False, groups=()) as stack:
        for name in ("postgres", "valkey"):
            before = {process.name: process for process in stack.processes}[name]
            os.kill(before.pid, signal.SIGKILL)
            assert eventually(lambda pid=before.pid: all(process.pid != pid for process in stack.processes))
            news = news_until_it_runs_again(stack, name, before.pid)
            assert news == [
                f"{name} had ended; it starts again in 0.5 s",
                f"{name} runs again (process {stack.pid(name)})",
            ]
            assert {process.name: process for process in stack.processes}[name].address == before.address
            accepted = ask(stack, "/stores/journal/memories", stack.key, {"text": f"after {name}"}, wait=0)
            assert accepted["state"] == "queued"


def tend_until(stack: Stack, done: Callable[[], bool]) -> list[str]:
    news: list[str] = []

    def tended() -> bool:
        news.extend(stack.tend())
        return done()

    assert eventually(tended), news
    return news


def valkey_killed_and_its_port_taken(stack: Stack, listener: socket.socket) -> None:
    port = stack.valkey.port
    os.kill(stack.valkey.pid, signal.SIGKILL)
    assert eventually(lambda: not stack.valkey.alive)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()


def test_a_server_that_cannot_start_is_tried_again_later_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaths, "BACK_OFF_S", (0.1, 0.2, 0.3))
    with short_folder() as folder, Stack(folder / "data", durable=False, groups=(), api=False) as stack:
        with socket.socket() as listener:
            valkey_killed_and_its_port_taken(stack, listener)
            news = tend_until(stack, lambda: stack._deaths["valkey"].row == 3)
        assert news[0] == "valkey had ended; it starts again in 0.1 s"
        assert [line.rpartition("; ")[2] for line in news] == [
            f"it starts again in {seconds} s" for seconds in ("0.1", "0.2", "0.3")
        ]
        assert all("valkey cannot be started" in line and "Address already in use" in line for line in news[1:])
        assert tend_until(stack, lambda: stack.valkey.alive)[-1].startswith("valkey runs again (process ")


def test_a_server_that_never_starts_ends_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaths, "BACK_OFF_S", (0.01,))
    with short_folder() as folder, Stack(folder / "data", durable=False, groups=(), api=False) as stack:
        with socket.socket() as listener:
            valkey_killed_and_its_port_taken(stack, listener)
            with pytest.raises(CannotStart, match=r"(?s)valkey cannot be started.* 7 times in a row.*stopped"):
                tend_until(stack, lambda: False)
        stack.stop()
        assert all_gone(folder / "data")


def test_a_server_that_was_stable_and_never_starts_again_ends_the_stack_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [time.monotonic()]
    for module in (stacks, deaths):
        monkeypatch.setattr(module, "monotonic", lambda: clock[0])
    with short_folder() as folder, Stack(folder / "data", durable=False, groups=(), api=False) as stack:
        clock[0] += deaths.STABLE_S + 1
        news: list[str] = []
        with socket.socket() as listener:
            valkey_killed_and_its_port_taken(stack, listener)
            for _ in range(stacks.SERVER_DEATHS):
                news += stack.tend()
                clock[0] += max(deaths.BACK_OFF_S)
            with pytest.raises(CannotStart, match=r"(?s)valkey cannot be started.* 7 times in a row.*stopped"):
                stack.tend()
        assert [line.rpartition("; ")[2] for line in news] == [
            f"it starts again in {seconds} s" for seconds in ("0.5", "1", "2", "4", "8", "16")
        ]


def test_what_a_killed_worker_held_is_done_long_before_its_lease_ends() -> None:
    """Its lease is 30 s; the stack saw the process end and says so. The write counts one crash, and is there once."""
    with (
        short_folder() as folder,
        Stack(folder / "data", durable=False, groups=("fast",)) as stack,
        Database(stack.database_url("relay"), name="test", size=1) as db,
    ):

        def signed_in() -> bool:
            with db.system() as tx:
                return any(row["pid"] == stack.pid("fast") for row in tx.rows("processes"))

        assert eventually(signed_in)
        body = {"text": "The owl lives in the mill. " * 140_000}
        job = ask(stack, "/stores/journal/memories", stack.key, body, wait=0)["id"]
        assert eventually(lambda: ask(stack, f"/jobs/{job}", stack.key)["state"] == "running")
        began = time.monotonic()
        killed = stack.pid("fast")
        os.kill(killed, signal.SIGKILL)
        ended: dict = {"state": "running"}

        def written() -> bool:
            ended.update(ask(stack, f"/jobs/{job}", stack.key))
            return ended["state"] == "succeeded"

        news = tend_until(stack, written)
        assert time.monotonic() - began < 25
        assert any("fast" in line and "; 1 of its jobs go to others; it starts again" in line for line in news)
        assert (ended["attempt"], ended["result"]["revision"]) == (2, 1)
        with db.system() as tx:
            assert killed not in [row["pid"] for row in tx.rows("processes")]


def test_a_stack_keeps_its_data_and_keys_and_forgets_dead_processes() -> None:
    with short_folder() as folder:
        first = Stack(folder / "data", durable=False, groups=("fast",))
        with first:
            key, operator_key = first.key, first.operator_key
            document = ask(first, "/stores/journal/memories", key, {"text": "kept"})["document"]["id"]
            with Database(first.database_url("relay"), name="test", size=1) as db, db.system() as tx:
                roles = sorted(row["role"] for row in tx.rows("processes"))
        assert roles == ["relay", "worker-fast"]
        assert all_gone(folder / "data")
        assert DataDir(folder / "data").running() is None
        with Stack(folder / "data", durable=False, groups=("fast",)) as second:
            assert (second.key, second.operator_key) == (key, operator_key)
            assert ask(second, f"/stores/journal/records/{document}", key)["content"] == "kept"


def test_a_part_of_the_stack_may_run_without_api_and_workers() -> None:
    with short_folder() as folder, Stack(folder / "data", durable=False, groups=(), api=False) as stack:
        assert [process.name for process in stack.processes] == ["postgres", "valkey", "relay", "exporter"]
        with pytest.raises(RuntimeError, match="no API"):
            stack.url  # noqa: B018


def test_a_process_that_cannot_start_is_named_with_its_log_and_nothing_stays() -> None:
    with short_folder() as folder:
        stack = Stack(folder / "data", durable=False, groups=("fast",), extra={"fast": {"faults": "nowhere=kill"}})
        with pytest.raises(CannotStart, match=r"(?s)^fast ended at once with status 1\. .*MUNIMENT_FAULTS"):
            stack.start()
        assert stack.processes == []
        assert all_gone(folder / "data")


def test_who_loses_its_port_to_another_server_is_moved_and_a_stranger_is_never_taken_for_it(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if both looked at the same moment: the ports were free, and `stack` took them first.
    monkeypatch.setattr("workers.embedded.stack._port", lambda usual: int(taken[usual].rpartition(":")[2]))
    addresses = {process.name: process.address for process in stack.processes}
    taken = {API_PORT: addresses["api"], EXPORTER_PORT: addresses["exporter"]}
    with short_folder() as folder, Stack(folder / "data", durable=False, groups=()) as second:
        moved = {process.name: process.address for process in second.processes}
        assert moved["api"] != addresses["api"]
        assert moved["exporter"] != addresses["exporter"]
        assert ask(second, "/stores", second.key)["items"][0]["name"] == "journal"


def test_a_port_that_is_taken_is_refused() -> None:
    with short_folder() as folder, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(CannotStart, match=f"Port {port} is taken"):
            Stack(folder / "data", durable=False, port=port).start()
        assert sorted(path.name for path in (folder / "data").iterdir()) == ["lock", "logs"]
