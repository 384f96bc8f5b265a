"""The client commands against a real stack: what they send, print, and end with."""

import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from api.cli import archives
from api.cli.client import Client
from core.errors import Unavailable, WrongState
from tests.cli import environment, invoke
from tests.services import short_folder
from workers.embedded.stack import Stack

GOLDEN = Path(__file__).parents[1] / "golden" / "archives" / "chatgpt" / "conversations.json"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with short_folder() as folder, Stack(folder / "data", durable=False) as running:
        yield running


@pytest.fixture
def env(stack: Stack) -> dict[str, str]:
    """As a person's shell: only the data folder is known."""
    return environment(data_dir=str(stack.data.path))


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url, stack.key, timeout=30, connect_timeout=5) as made:
        yield made


def run(env: dict[str, str], *arguments: str, stdin: str = "", status: int = 0) -> str:
    done = invoke(*arguments, stdin=stdin, env=env)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def test_a_text_a_conversation_and_a_batch_are_written_and_read(env: dict[str, str]) -> None:
    text = json.loads(run(env, "write", stdin='{"text": "The kiln is fired on Fridays."}'))
    talk = {"sessionId": "s1", "messages": [{"role": "user", "content": "The glaze is cobalt."}]}
    conversation = json.loads(run(env, "write", stdin=json.dumps(talk)))
    batch = json.loads(run(env, "write", stdin=json.dumps({"items": [{"text": "One."}, talk]})))
    assert [len(item["blocks"]) for item in (text, conversation, *batch["items"])] == [1, 1, 1, 1]

    view = json.loads(run(env, "read", stdin='{"question": "When is the kiln fired?"}'))
    assert text["blocks"][0]["id"] in [item["id"] for item in view["items"]]  # in order of time
    document = conversation["document"]
    shown = invoke("records", "show", document["id"], env=env).stdout
    assert hashlib.sha256(shown.encode()).hexdigest() == document["sha256"]
    said = json.loads(run(env, "records", "messages", document["id"]))["items"]
    assert [(message["role"], message["content"]) for message in said] == [("user", "The glaze is cobalt.")]


def test_a_search_is_shown_and_explained(env: dict[str, str]) -> None:
    body = {"items": [{"text": "The ferry sails at noon."}, {"text": "Berta bakes."}]}
    written = json.loads(run(env, "write", stdin=json.dumps(body)))
    own_id = written["items"][0]["blocks"][0]["id"]
    shown = run(env, "search", "journal", "When does the ferry sail?", "--explain")
    assert own_id in shown.split("lexical: found")[0]
    assert "The ferry sails at noon." in shown
    assert "ferri (1)" in shown
    assert "in the result" in shown
    as_json = json.loads(run(env, "search", "journal", "ferry", "--json", "-k", "1", "--route", "lexical"))
    assert [item["id"] for item in as_json["items"]] == [own_id]
    assert as_json["items"][0]["routes"].keys() == {"lexical"}
    assert "consolidated layer" in run(env, "search", "journal", "ferry", "--route", "relations", status=1)


def test_a_view_is_proved_by_an_export(env: dict[str, str], tmp_path: Path) -> None:
    run(env, "stores", "put", "proved")
    run(
        env,
        "write",
        "--store",
        "proved",
        stdin=json.dumps({"text": "A lighthouse — 🗼 — stands at the cape. " * 60, "id": "light"}),
    )
    talk = {"sessionId": "s9", "messages": [{"role": "user", "content": f"Lamp {n} burns."} for n in range(80)]}
    run(env, "write", "--store", "proved", stdin=json.dumps(talk))
    view, export = tmp_path / "view.json", tmp_path / "export.jsonl"
    view.write_text(
        run(env, "read", "--store", "proved", stdin='{"question": "Where do the lighthouse and its lamp stand?"}')
    )
    export.write_bytes(run(env, "export", "proved").encode())
    shown = json.loads(view.read_text())
    assert len({item["parent"]["id"] for item in shown["items"]}) > 1
    assert run(env, "verify", str(view), str(export)) == f"{len(shown['items'])} proved, 0 not\n"

    lines = export.read_text().splitlines()
    hashes = {hashlib.sha256(line.encode()).hexdigest(): json.loads(line) for line in lines}
    assert all(hashes[item["sha256"]]["id"] == item["id"] for item in shown["items"])
    changed = export.with_name("changed.jsonl")
    changed.write_text(export.read_text().replace("lighthouse", "Lighthouse", 1))  # in the document alone
    assert "no document of its parent's id and hash" in run(env, "verify", str(view), str(changed), status=1)
    shown["items"][0]["text"] = shown["items"][0]["text"].replace("a", "e")
    shown["items"][1]["parent"]["start"] += 1
    view.write_text(json.dumps(shown))
    refused = run(env, "verify", str(view), str(export), status=1)
    assert f"{shown['items'][0]['id']}: its text is not what the record holds" in refused
    assert f"{shown['items'][1]['id']}: its parent is not the record's" in refused


def test_any_unicode_goes_through_unchanged(env: dict[str, str]) -> None:
    text = "naïve 👩‍👩‍👧 \u202e rtl \u0301 ümlaut"
    written = json.loads(run(env, "write", stdin=json.dumps({"text": text}, ensure_ascii=False)))
    assert json.loads(run(env, "records", "show", written["document"]["id"]))["content"] == text


def test_a_repeated_write_with_one_key_writes_once(env: dict[str, str]) -> None:
    command = ("write", "--idempotency-key", "once")
    first, second = (run(env, *command, stdin='{"text": "only once"}') for _ in range(2))
    assert json.loads(first) == json.loads(second)
    assert "another body" in run(env, *command, stdin='{"text": "other"}', status=1)


def test_accepted_is_no_failure_and_the_job_can_be_watched_and_deleted(env: dict[str, str]) -> None:
    done = invoke("write", "--wait", "0", stdin='{"text": "later"}', env=env)
    job = json.loads(done.stdout)
    assert (done.returncode, job["state"]) == (0, "queued")
    assert f"muniment jobs watch {job['id']}" in done.stderr

    ended = json.loads(run(env, "jobs", "watch", job["id"]))
    assert ended["state"] == "succeeded"
    listed = json.loads(run(env, "jobs", "list", "--state", "succeeded", "--store", "journal", "--json"))["items"]
    assert job["id"] in [item["id"] for item in listed]
    assert "wrong-state" in run(env, "jobs", "cancel", job["id"], status=1)
    assert "only a dead job" in run(env, "jobs", "retry", job["id"], status=1)
    run(env, "jobs", "delete", job["id"])
    assert "not-found" in run(env, "jobs", "show", job["id"], status=1)


def test_a_job_that_fails_while_waited_for_ends_the_command_with_its_problem(env: dict[str, str]) -> None:
    run(env, "write", stdin='{"text": "mine", "id": "taken"}')
    assert "document id already exists" in run(env, "write", stdin='{"text": "mine", "id": "taken"}', status=1)


@pytest.mark.parametrize(
    ("stdin", "expected"),
    [
        ('{"text": "", "sauce": 1}', ["invalid-request", "\n  text: ", "\n  sauce: "]),
        ('{"text": "x", "scope": "project"}', ["(invalid-request): workspaceId: is required"]),
        ("{", ["standard input: is not JSON at byte 1"]),
        ('{"text": "a", "text": "b"}', ["text: is given twice"]),
        ("[]", ["standard input is not a JSON object"]),
        ("", ["standard input: is empty"]),
    ],
)
def test_what_is_wrong_with_the_input_is_said_field_by_field(
    env: dict[str, str], stdin: str, expected: list[str]
) -> None:
    said = run(env, "write", stdin=stdin, status=1)
    assert all(words in said for words in expected), said


def test_wrong_usage_ends_with_2(env: dict[str, str]) -> None:
    for command in (["write", "--no-such"], ["import", "/no/such/file"], ["worker", "slow"], ["keys", "list"]):
        assert invoke(*command, env=env).returncode == 2


def test_a_wrong_key_is_refused_and_not_shown(stack: Stack, tmp_path: Path) -> None:
    wrong = "mun_" + "x" * 43
    (tmp_path / "key").write_text(wrong)
    done = invoke("stores", "list", "--url", stack.url, "--key-file", str(tmp_path / "key"), env=environment())
    assert done.returncode == 1
    assert "unauthenticated" in done.stderr
    assert wrong not in done.stdout + done.stderr


def test_without_a_key_or_for_another_machine_the_local_key_is_not_used(env: dict[str, str], tmp_path: Path) -> None:
    no_key = environment(data_dir=str(tmp_path))
    assert "no key: start `muniment up` here, set MUNIMENT_API_KEY or give --key-file" in run(
        no_key, "stores", "list", status=1
    )
    assert "set MUNIMENT_API_KEY" in run(env, "stores", "list", "--url", "https://memory.example", status=1)


def test_a_silent_or_absent_api_is_reported_within_the_time_outs(env: dict[str, str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        began = monotonic()
        said = run(env, "stores", "list", "--url", url, "--timeout", "0.3", status=1)
        assert f"{url} broke off or did not answer in time" in said
        assert monotonic() - began < 20
    said = run(env, "stores", "list", "--url", url, status=1)
    assert f"no Muniment answers at {url}" in said
    assert "start `muniment up`, or set MUNIMENT_URL" in said


@pytest.mark.parametrize("url", ["memory.example", "http://[", "http://host:99999", "ftp://host", "http://"])
def test_what_is_no_address_is_told_as_a_setting(env: dict[str, str], url: str) -> None:
    said = run(env, "stores", "list", "--url", url, status=1)
    assert said.startswith(f"A setting is wrong or missing (settings): --url: {url!r} is no address")
    assert "MUNIMENT_URL: " in run({**env, "MUNIMENT_URL": url}, "stores", "list", status=1)


def test_what_no_key_can_hold_is_refused_before_it_is_sent(env: dict[str, str]) -> None:
    said = run({**env, "MUNIMENT_API_KEY": "mun_é\n"}, "stores", "list", status=1)
    assert "MUNIMENT_API_KEY holds characters that no key has" in said


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty: export or download it again"),
        (b'[{"uuid": "u", "chat_messages": []}]', "its only entry is none (fields: uuid, chat_messages)"),
        (b'[{"id": "a", "mapping": {"m": ', "is incomplete or damaged (it breaks off in entry 1)"),
    ],
)
def test_an_import_says_what_is_wrong_with_its_file(
    env: dict[str, str], tmp_path: Path, content: bytes, told: str
) -> None:
    file = tmp_path / "my export.json"
    file.write_bytes(content)
    assert told in run(env, "import", str(file), status=1)


def test_stores_are_made_shown_configured_and_erased(env: dict[str, str], tmp_path: Path) -> None:
    assert json.loads(run(env, "stores", "put", "notes"))["name"] == "notes"
    done = invoke("stores", "show", "notes", env=env)
    etag = done.stderr.removeprefix("ETag: ").strip()
    config = tmp_path / "config.json"
    config.write_text('{"version": 1, "view": {"maxItems": 3}}')
    changed = json.loads(run(env, "stores", "put", "notes", "--config", str(config), "--if-match", etag))
    assert changed["configuration"]["view"]["maxItems"] == 3
    assert "precondition-failed" in run(env, "stores", "put", "notes", "--if-match", etag, status=1)
    assert "notes" in run(env, "stores", "list")
    assert invoke("stores", "delete", "notes", stdin="n\n", env=env).returncode == 1
    run(env, "stores", "delete", "notes", "--yes")
    assert "not-found" in run(env, "stores", "show", "notes", status=1)


def test_a_record_is_erased_with_a_receipt(env: dict[str, str]) -> None:
    run(env, "write", stdin='{"text": "forget me", "id": "gone"}')
    assert "gone" in run(env, "records", "list", "--limit", "1000")
    run(env, "records", "delete", "gone", "--yes")
    assert "erased" in run(env, "records", "show", "gone", status=1)


def test_an_archive_is_imported_with_a_report_and_the_same_again_is_there_already(env: dict[str, str]) -> None:
    run(env, "stores", "put", "archive")
    report = run(env, "import", str(GOLDEN), "--store", "archive")
    expected = json.loads(run(env, "import", str(GOLDEN), "--store", "archive", "--json"))["report"]
    assert expected["messages"] == 0
    assert expected["alreadyThere"] > 0
    left_out = sum(entry["count"] for entry in expected["skipped"])
    assert f"Import succeeded: {expected['conversations']} conversations, " in report
    assert f"Left out: {left_out} items" in report
    for entry in expected["skipped"]:
        assert f"{entry['count']:>6}  {entry['reason']} (first: " in report


def test_an_archive_that_cannot_be_read_fails_with_its_reason(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    file.write_text('{"not": "an archive"}')
    assert "invalid-request" in run(env, "import", str(file), status=1)


def test_an_interrupted_upload_goes_on_where_it_stopped(env: dict[str, str], client: Client) -> None:
    run(env, "stores", "put", "resumed")
    import_id = archives.create(client, "resumed", GOLDEN)
    headers = {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    client.send("PATCH", f"/imports/{import_id}", body=GOLDEN.read_bytes()[:1000], headers=headers)
    offsets = list(archives.upload(client, import_id, GOLDEN))
    assert offsets == [1000, GOLDEN.stat().st_size]
    found = json.loads(run(env, "import", str(GOLDEN), "--resume", import_id, "--json"))
    assert (found["id"], found["state"]) == (import_id, "succeeded")
    assert found["report"]["messages"] > 0


def test_another_file_than_was_announced_is_refused(env: dict[str, str], client: Client, tmp_path: Path) -> None:
    import_id = archives.create(client, "journal", GOLDEN)
    other = tmp_path / "other.json"
    other.write_text("[]")
    with pytest.raises(WrongState, match="2 bytes"):
        list(archives.upload(client, import_id, other))


@pytest.mark.parametrize("lost", ["before", "after"])
def test_an_upload_survives_lost_connections(client: Client, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    send, failures = archives._send, iter([True, True])

    def flaky(*arguments) -> None:
        if lost == "after":
            send(*arguments)
        if next(failures, False):
            raise Unavailable("the connection is lost")
        if lost == "before":
            send(*arguments)

    monkeypatch.setattr(archives, "_send", flaky)
    monkeypatch.setattr(archives, "PAUSES_S", (0, 0, 0))
    monkeypatch.setattr(archives, "PIECE_BYTES", GOLDEN.stat().st_size // 3)
    import_id = archives.create(client, "journal", GOLDEN)
    assert list(archives.upload(client, import_id, GOLDEN))[-1] == GOLDEN.stat().st_size
    assert client.get(f"/imports/{import_id}")["state"] == "ready"


def test_an_upload_that_gets_no_further_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def broken(*arguments) -> None:
        tries.append(1)
        raise Unavailable("the connection is lost")

    monkeypatch.setattr(archives, "_send", broken)
    monkeypatch.setattr(archives, "PAUSES_S", (0, 0))
    with pytest.raises(Unavailable):
        list(archives.upload(client, archives.create(client, "journal", GOLDEN), GOLDEN))
    assert len(tries) == 3
