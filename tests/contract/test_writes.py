"""Writing through HTTP, accepted and waited for."""

import httpx

WAIT = {"Prefer": "wait=20"}


def test_a_write_is_accepted_with_its_job(client: httpx.Client) -> None:
    answer = client.post("/v1/stores/journal/memories", json={"text": "The office is closed on Monday."})
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert "preference-applied" not in answer.headers
    assert job == {
        "id": job["id"], "store": "journal", "kind": "write", "queue": "write.interactive", "lane": "interactive",
        "state": "queued", "attempt": 0, "maxAttempts": 5, "createdAt": job["createdAt"], "readyAt": job["createdAt"],
    }  # fmt: skip
    assert client.get(answer.headers["location"]).json() == job


def test_a_waited_for_write_answers_its_result(client: httpx.Client, workers: None) -> None:
    text = "We moved the release to Thursday. 🚀 Ana signs it off."
    answer = client.post("/v1/stores/journal/memories", json={"text": text, "id": "release-1"}, headers=WAIT)
    assert answer.status_code == 201
    assert answer.headers["preference-applied"] == "wait"
    result = answer.json()
    assert result["revision"] == 1
    assert result["document"]["id"] == "release-1"
    assert [block["id"] for block in result["blocks"]] == ["release-1-b0000"]
    record = client.get("/v1/stores/journal/records/release-1-b0000")
    assert record.headers["etag"] == f'"{result["blocks"][0]["sha256"]}"'
    assert record.json()["content"] == text
