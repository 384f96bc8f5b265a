"""Every error a caller of Muniment can meet.

MunimentError                slug                 status
├── InvalidRequest           invalid-request      422
├── Unauthenticated          unauthenticated      401
├── Forbidden                forbidden            403
├── NotFound                 not-found            404
├── DocumentExists           document-exists      409
├── IdempotencyConflict      idempotency-conflict 409
├── WrongState               wrong-state          409
├── Cancelled                cancelled            409
├── Erased                   erased               410
├── PreconditionFailed       precondition-failed  412
├── TooLarge                 too-large            413
├── QuotaExceeded            quota                429
├── BudgetSpent              budget-spent         402
├── JobFailed                job-failed           500
├── ReadOnly                 read-only            503
├── ModelUnavailable         model-unavailable    503   (`retryable` says whether another try may do better)
├── Unavailable              unavailable          503   (transient: worth another try)
│   └── Deadlocked           unavailable          503   (nothing was written: run it again)
├── DeadlineExceeded         deadline-exceeded    504
└── LeaseLost                (never shown to a client: the work is discarded)

Slugs, titles and statuses are those of contract.md (Errors). A job that ends with one of these keeps it in its row.
"""

from collections.abc import Sequence
from typing import ClassVar


class FieldProblem:
    """One field that is wrong: `field` is its JSON path, `message` says what to do."""

    __slots__ = ("field", "message")

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message

    def as_json(self) -> dict[str, str]:
        return {"field": self.field, "message": self.message}


class MunimentError(Exception):
    """Base of all. `retryable`: the same work may succeed later without a change by the caller."""

    slug: ClassVar[str] = "job-failed"
    title: ClassVar[str] = "The job failed"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        detail: str = "",
        *,
        fields: Sequence[FieldProblem] = (),
        retry_after: int | None = None,
        job: str | None = None,
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.fields = tuple(fields)
        self.retry_after = retry_after
        self.job = job

    def as_json(self) -> dict[str, object]:
        """`{type, title, status, detail, errors?, job?}` (RFC 9457), as kept in a job's row and sent to a client."""
        problem: dict[str, object] = {
            "type": f"/problems/{self.slug}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.fields:
            problem["errors"] = [field.as_json() for field in self.fields]
        if self.job is not None:
            problem["job"] = self.job
        return problem


class InvalidRequest(MunimentError):
    slug, title, status = "invalid-request", "The request is not valid", 422

    @classmethod
    def field(cls, name: str, message: str) -> "InvalidRequest":
        """One wrong field; the detail repeats it, so that a log line says it all."""
        return cls(f"{name}: {message}", fields=[FieldProblem(name, message)])


class Unauthenticated(MunimentError):
    slug, title, status = "unauthenticated", "The key is missing or not valid", 401


class Forbidden(MunimentError):
    slug, title, status = "forbidden", "The key does not allow this", 403


class NotFound(MunimentError):
    slug, title, status = "not-found", "There is no such thing", 404


class DocumentExists(MunimentError):
    slug, title, status = "document-exists", "The document id is taken", 409

    def __init__(self, detail: str = "document id already exists", **more: object) -> None:
        del more
        super().__init__(detail)


class IdempotencyConflict(MunimentError):
    slug, title, status = "idempotency-conflict", "The Idempotency-Key is in use", 409


class WrongState(MunimentError):
    slug, title, status = "wrong-state", "This cannot be done in the present state", 409


class Cancelled(MunimentError):
    slug, title, status = "cancelled", "The job was cancelled", 409


class Erased(MunimentError):
    slug, title, status = "erased", "The record was erased", 410


class PreconditionFailed(MunimentError):
    slug, title, status = "precondition-failed", "It has changed since you read it", 412


class TooLarge(MunimentError):
    slug, title, status = "too-large", "The request is too large", 413


class QuotaExceeded(MunimentError):
    slug, title, status = "quota", "A quota is used up", 429


class BudgetSpent(MunimentError):
    """A spending limit is used up: nothing was sent. `cap`: whose, one of provider, tenant, store, job.

    `reads_only`: what is left of it is kept for reads."""

    slug, title, status = "budget-spent", "A budget is spent", 402

    def __init__(self, detail: str = "", *, provider: str = "", cap: str = "", reads_only: bool = False) -> None:
        super().__init__(detail)
        self.provider = provider
        self.cap = cap
        self.reads_only = reads_only


class JobFailed(MunimentError):
    slug, title, status = "job-failed", "The job failed", 500


class ReadOnly(MunimentError):
    slug, title, status = "read-only", "Muniment is read-only at present", 503


class Unavailable(MunimentError):
    slug, title, status = "unavailable", "A service Muniment needs is unavailable", 503
    retryable = True


class Deadlocked(Unavailable):
    """Postgres ended this transaction so that another could go on: nothing was written, and it may be run again at once."""


class ModelUnavailable(MunimentError):
    """A model could not be asked, or gave nothing of use. `retry_after`: its own wish, in seconds."""

    slug, title, status = "model-unavailable", "A model is unavailable", 503
    retryable = True


class DeadlineExceeded(MunimentError):
    slug, title, status = "deadline-exceeded", "The deadline passed", 504


class LeaseLost(MunimentError):
    """Another worker may hold the job by now: nothing may be written any more."""

    slug, title, status = "unavailable", "The lease was lost", 503
    retryable = True


PROBLEMS: tuple[type[MunimentError], ...] = (
    InvalidRequest,
    Unauthenticated,
    Forbidden,
    NotFound,
    DocumentExists,
    IdempotencyConflict,
    WrongState,
    Cancelled,
    Erased,
    PreconditionFailed,
    TooLarge,
    QuotaExceeded,
    BudgetSpent,
    JobFailed,
    ReadOnly,
    ModelUnavailable,
    Unavailable,
    DeadlineExceeded,
)
"""Every class a client can meet, one a slug."""


def from_json(problem: dict[str, object]) -> MunimentError:
    """The error that `as_json` wrote, as its class again; an unknown slug becomes `JobFailed`."""
    slug = str(problem.get("type", "")).removeprefix("/problems/")
    detail = str(problem.get("detail", ""))
    fields: list[FieldProblem] = []
    entries = problem.get("errors")
    if isinstance(entries, list):
        for entry in entries:  # pyright: ignore[reportUnknownVariableType]
            if isinstance(entry, dict):
                fields.append(FieldProblem(str(entry.get("field")), str(entry.get("message"))))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    for cls in PROBLEMS:
        if cls.slug == slug:
            error = cls(detail)
            error.fields = tuple(fields)
            return error
    return JobFailed(detail)
