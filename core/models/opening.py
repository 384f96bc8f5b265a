"""What one process needs to ask models, made and started as one."""

from core.budget.money import Money
from core.faults import Faults
from core.models.attempt import Observer, Parts, Unobserved
from core.models.catalogue import Profiles
from core.models.circuits import REFRESH_SECONDS, Circuits
from core.models.embedders import Embedders
from core.models.gateway import Gateway
from core.models.replay import Replay
from core.models.shared_circuits import SharedCircuits
from core.models.timing import Timing
from core.models.transport import Transport
from core.settings import Settings
from core.store.database import Database


class Models:
    """`start`, then `stop`, each once; or `with`. `db` is the process's own pool, for profiles and the replay cache; money
    and circuits have connections of their own."""

    def __init__(
        self,
        settings: Settings,
        db: Database,
        *,
        faults: Faults | None = None,
        observe: Observer | None = None,
        timing: Timing | None = None,
    ) -> None:
        """Raises SettingsError: the file of profiles."""
        timing = timing or Timing()
        inflight = {
            "read": settings.model_inflight_read,
            "flush": settings.model_inflight_flush,
            "consolidation": settings.model_inflight_consolidation,
        }
        self.money = Money(settings, inflight, faults)
        self.circuits = Circuits(timing, SharedCircuits(self.money.db), str(self.money.lease.process_id))
        self.money.lease.every(REFRESH_SECONDS, self.circuits.refresh)
        parts = Parts(Transport(timing.monotonic), self.money.ledger, self.circuits, timing, observe or Unobserved())
        self.profiles = Profiles(db, settings)
        replay = Replay(db) if settings.allow_model_cache else None
        self.gateway = Gateway(parts, self.money.shares, self.profiles, settings.model_key, replay)
        self.embedders = Embedders(self.profiles, self.gateway)

    def start(self) -> None:
        """Returns at once; what needs Postgres waits for it."""
        self.money.start()

    def stop(self) -> None:
        """Waits a few seconds for what still runs."""
        self.gateway.close()
        self.money.stop()

    def __enter__(self) -> "Models":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
