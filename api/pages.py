"""`/problems/{slug}`: what each problem means and what to do about it."""

from core.errors import PROBLEMS

ADVICE: dict[str, tuple[str, str]] = {
    "invalid-request": (
        "A field, a query parameter or a header is missing, unknown, or outside its limits.",
        "Read `errors`: each entry names the field and what it wants. The same request will fail again.",
    ),
    "unauthenticated": (
        "The request has no key, or its key is unknown, expired or revoked.",
        "Send `Authorization: Bearer mun_…`. Make a new key when this one was revoked.",
    ),
    "forbidden": (
        "The key is good but has not the scope, or not the store, that this needs.",
        "Use a key with that scope, or ask whoever manages the tenant's keys.",
    ),
    "not-found": (
        "There is no such route, store, record or job, or it belongs to somebody else.",
        "Check the id and the store's name; finished jobs are deleted after their retention.",
    ),
    "document-exists": (
        "The store already has, or once had, a document of this id.",
        "Send the text without an id, or with another. If this was a repetition, the first write has succeeded.",
    ),
    "idempotency-conflict": (
        "The Idempotency-Key was used with another body, or its first request is still being worked on.",
        "With another body: use a new key. Otherwise follow `job`, or repeat the request later.",
    ),
    "wrong-state": (
        "The job, import or upload is not in a state in which this can be done.",
        "Look at its present state first. Only dead jobs can be retried, only finished ones deleted.",
    ),
    "cancelled": ("Somebody cancelled the job.", "Send the request again if the work is still wanted."),
    "erased": (
        "The record was erased, and with it everything it said.",
        "Nothing brings it back; its id is never given again.",
    ),
    "precondition-failed": (
        "It has changed since you read it: the `If-Match` you sent is no longer its ETag.",
        "Read it again, repeat your change on what you read, and send the new ETag.",
    ),
    "too-large": (
        "The body, or a text in it, is over its limit.",
        "Split it: a conversation into several, a batch into smaller ones. An archive goes through an import.",
    ),
    "quota": (
        "The tenant has used up a quota: queued jobs, queued bytes, stored bytes or requests a second.",
        "Wait as long as `Retry-After` says, or ask the operator for more.",
    ),
    "budget-spent": (
        "A spending limit is used up: the operator's for this provider, or a lower one of the tenant, the store or the job.",
        "See `GET /v1/budgets`. Ask the operator to raise the limit; background work then goes on by itself.",
    ),
    "job-failed": (
        "The job used up its attempts, or met an error that nobody foresaw.",
        "Look at `GET /v1/jobs/{id}`; a dead job can be retried. Tell the operator if it happens again.",
    ),
    "read-only": (
        "The operator has made Muniment read-only for now; reads go on.",
        "Repeat the write after `Retry-After`.",
    ),
    "unavailable": (
        "Something Muniment needs, such as its database, cannot be reached.",
        "Repeat the request after `Retry-After`; with an Idempotency-Key that is always safe.",
    ),
    "model-unavailable": (
        "A model's provider cannot be reached, fails or throttles; the call was tried as often as is allowed.",
        "Repeat the request after `Retry-After`. If it goes on, the operator should look at the provider.",
    ),
    "deadline-exceeded": (
        "The job's time was over before it was done.",
        "Send the request again; if it happens often, the queue is behind: tell the operator.",
    ),
}


def page(slug: str) -> str | None:
    """The text for one slug; None when there is no such problem."""
    for error in PROBLEMS:
        if error.slug == slug:
            meaning, cure = ADVICE[slug]
            head = f"{error.title} ({slug}, HTTP status {error.status})"
            return f"{head}\n\nWhat it means\n  {meaning}\n\nWhat to do\n  {cure}\n"
    return None
