"""The whole of Muniment on one machine: both servers, the API, the workers, the relay and the exporter.

All of them are children of this process and end with it, however it ends. `muniment up`, `muniment demo`, tests and
benchmarks use this one class.
"""

import os
import signal
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from core.clock import monotonic
from core.errors import MunimentError
from core.settings import PREFIX, child_environment
from core.store.database import Database, Row
from core.store.migrate import bootstrap, migrate
from workers.embedded.datadir import DataDir, Running, read_key
from workers.embedded.deaths import Deaths
from workers.embedded.errors import CannotStart
from workers.embedded.firsttenant import first_tenant, make_first_tenant
from workers.embedded.ports import ATTEMPTS, LOOPBACK, free_port, is_free
from workers.embedded.postgres import Postgres
from workers.embedded.process import KILL_S, Child, how_it_ended
from workers.embedded.readiness import await_all
from workers.embedded.rehearsal.granting import grant
from workers.embedded.valkey import Valkey
from workers.queues import GROUPS

DATABASE = "muniment"
API_PORT = 8420
EXPORTER_PORT = 9420
REHEARSAL_PORT = 9430
OF_MODELS = ("models", "model_key_envs")
"""Settings that operators' commands need as the processes have them."""
READY_S = 60.0
STOP_S = 15.0
FINISH_S = 5
"""How long a stopping worker lets running jobs finish; what it cannot is done after the next start."""
LOG_BYTES = 16 * 1024 * 1024
"""A longer log begins anew at the next start."""
SERVER_DEATHS = 6
"""After more than these in a row, half a minute of trying, the stack gives up: without its servers nothing works."""


@dataclass(frozen=True, slots=True)
class Process:
    """One line of what runs where. `address` is empty for what nobody connects to."""

    name: str
    pid: int
    address: str
    log: Path


@dataclass(slots=True)
class _Own:
    """One of our own processes. `bind` is the setting that its address goes into, when it has one."""

    command: list[str]
    environment: dict[str, str]
    log: Path
    address: str = ""
    bind: str = ""
    child: Child | None = None
    deaths: Deaths = field(default_factory=Deaths)

    def listen_on(self, port: int) -> None:
        self.address = f"{LOOPBACK}:{port}"
        self.environment[f"{PREFIX}{self.bind.upper()}"] = self.address

    def launch(self) -> None:
        command = [sys.executable, "-P", "-m", "api.cli.main", *self.command]
        # Nothing that was accepted needs a clean end, and an owner that is gone cannot wait for one.
        self.child = Child.start(command, log=self.log, death_signal=signal.SIGKILL, env=self.environment)
        self.deaths.started()


class Stack:
    """Start it from the main thread. `with Stack(folder) as stack:` gives a stack that answers, or raises CannotStart.

    `durable` False is for tests: quick, and unsafe against a power cut. `groups` are the worker groups to run, `api`
    False leaves the API out. `port` is the API's (None: 8420 if it is free, else any). `rehearsal` True also serves rules in
    the place of models, as profiles of the first tenant. `settings` are for all our own
    processes, `extra` for one of them by its name (`api`, a group, `relay`, `exporter`, `rehearsal`), e.g.
    `{"fast": {"faults": "commit.before=kill:0.1"}}`; both are field names of `core.settings.Settings`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        durable: bool = True,
        groups: Collection[str] = tuple(GROUPS),
        api: bool = True,
        port: int | None = None,
        rehearsal: bool = False,
        settings: Mapping[str, str] | None = None,
        extra: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.data = DataDir(data_dir)
        self._durable = durable
        self._groups = [GROUPS[name] for name in groups]
        self._with_api = api
        self._port = port
        self._with_rehearsal = rehearsal
        self._settings = settings or {}
        self._extra = extra or {}
        self.postgres = self._make_postgres()
        self.valkey = self._make_valkey()
        self._passwords: dict[str, str] = {}
        self._own: dict[str, _Own] = {}
        self._deaths = {"postgres": Deaths(), "valkey": Deaths()}

    # -- where it is ---------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The API's address, without a path. Raises RuntimeError for a stack without API."""
        if not self._with_api:
            raise RuntimeError("this stack has no API")
        return f"http://{self._own['api'].address}"

    @property
    def redis_url(self) -> str:
        return self.valkey.url

    def database_url(self, role: str) -> str:
        """The database as `owner`, `app`, `relay` or `exporter`."""
        return self.postgres.dsn(f"muniment_{role}", self._passwords[role], DATABASE)

    @property
    def rehearsal_url(self) -> str:
        """The rehearsal models' address, without a path; "" for a stack without them."""
        return f"http://{self._own['rehearsal'].address}" if "rehearsal" in self._own else ""

    @property
    def key(self) -> str:
        """The first tenant's key, with every scope."""
        return read_key(self.data.key_file) or ""

    @property
    def operator_key(self) -> str:
        return read_key(self.data.operator_key_file) or ""

    @property
    def processes(self) -> list[Process]:
        """What runs now, servers first."""
        servers = [
            Process(name, server.pid, f"{LOOPBACK}:{server.port}", server.log)
            for name, server in (("postgres", self.postgres), ("valkey", self.valkey))
            if server.alive
        ]
        return servers + [
            Process(name, own.child.pid, own.address, own.log)
            for name, own in self._own.items()
            if own.child is not None and own.child.poll() is None
        ]

    def pid(self, name: str) -> int:
        """The process of this name that runs now. Raises KeyError when none does."""
        return {process.name: process.pid for process in self.processes}[name]

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when everything answers. On any error, Ctrl-C included, nothing is left running."""
        self.data.take()
        try:
            if self._port is not None and not is_free(self._port):
                raise CannotStart(f"Port {self._port} is taken: choose another with --port, or leave it out.")
            self.postgres.start()
            self.valkey.start()
            self._passwords = self.data.passwords()
            bootstrap(self.postgres.superuser_dsn, self._passwords, DATABASE)
            migrate(self.database_url("owner"))
            with Database(self.database_url("owner"), name="up", size=1) as db:
                make_first_tenant(db, self.data)
                _reap(db, lambda row: True)  # whoever signed in before is gone: the folder is ours alone
            for name, own in self._plan().items():
                self._own[name] = own
                if own.log.exists() and own.log.stat().st_size > LOG_BYTES:
                    os.truncate(own.log, 0)
                own.launch()
            self._await_first_ready()
            if self._with_rehearsal:
                self._grant_rehearsal()
            url = self.url if self._with_api else ""
            models = {name: self._settings[name] for name in OF_MODELS if name in self._settings}
            self.data.announce(Running(os.getpid(), url, self.database_url("owner"), self.redis_url, models))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends everything cleanly: our own processes together, then the servers. Harmless when nothing runs."""
        children = [own.child for own in self._own.values() if own.child is not None]
        for child in children:
            if child.poll() is None:  # not reaped, so the pid is still its own
                os.kill(child.pid, signal.SIGTERM)
        deadline = monotonic() + STOP_S
        for child in children:
            if child.wait(max(0, deadline - monotonic())) is None:
                child.stop(signal.SIGKILL, KILL_S)
        self._own.clear()
        self.valkey.stop()
        self.postgres.stop()
        self.data.give_back()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def await_ready(self, timeout: float = READY_S) -> None:
        """Returns when all our own processes answer. Raises CannotStart with the end of a log."""
        with Database(self.database_url("relay"), name="up", size=1) as db:
            await_all({name: (own.child, own.address) for name, own in self._own.items() if own.child}, db, timeout)

    def tend(self) -> list[str]:
        """Starts again what has died, later each time; call it a few times a second. What happened, for a person.

        Raises CannotStart with the end of its log when a server dies again and again."""
        news = [line for name in self._deaths for line in self._tend_server(name)]
        for name, own in self._own.items():
            deaths = own.deaths
            if deaths.again_at is None and own.child is not None and (status := own.child.poll()) is not None:
                wait = deaths.another()
                freed = self._free_claims(own.child.pid)
                news.append(
                    f"{name} (process {own.child.pid}) {how_it_ended(status)}{freed}; it starts again in {wait:g} s"
                )
            elif deaths.again_at is not None and monotonic() >= deaths.again_at:
                own.launch()
                news.append(f"{name} runs again (process {self.pid(name)})")
        return news

    def restart(self, name: str, first: signal.Signals = signal.SIGTERM) -> None:
        """Ends one process or server with the signal `first` and starts it anew at its address."""
        if name == "postgres":
            port = self.postgres.port
            self.postgres.stop()
            self.postgres = self._make_postgres(port)
            self.postgres.start()
        elif name == "valkey":
            port = self.valkey.port
            self.valkey.stop()
            self.valkey = self._make_valkey(port)
            self.valkey.start()
        else:
            own = self._own[name]
            if own.child is not None:
                own.child.stop(first, STOP_S)
                self._free_claims(own.child.pid)
            own.launch()

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _tend_server(self, name: str) -> list[str]:
        server, deaths = self._servers()[name], self._deaths[name]
        if deaths.again_at is None:
            if server.alive:
                return []
            what = f"{name} had ended"
        elif monotonic() < deaths.again_at:
            return []
        else:
            try:
                self.restart(name)
            except CannotStart as error:
                what = f"{name} cannot be started: {error}"
            else:
                deaths.started()
                return [f"{name} runs again (process {self.pid(name)})"]
        wait = deaths.another()
        if deaths.row > SERVER_DEATHS:
            raise CannotStart(f"{what}\nThat was {deaths.row} times in a row: everything is stopped. {server.tail()}")
        return [f"{what}; it starts again in {wait:g} s"]

    def _servers(self) -> dict[str, Postgres | Valkey]:
        return {"postgres": self.postgres, "valkey": self.valkey}

    def _free_claims(self, pid: int) -> str:
        """Lets others have what a process held that has died, and says so. If that fails, its leases run out."""
        if not self.postgres.alive:
            return ""
        try:
            with Database(self.database_url("relay"), name="up", size=1) as db:
                claims = _reap(db, lambda row: row["pid"] == pid and row["host"] == socket.gethostname())
        except MunimentError as error:
            return f"; what it held waits for its leases ({error.detail})"
        return f"; {claims} of its jobs go to others" if claims else ""

    def _make_postgres(self, port: int | None = None) -> Postgres:
        return Postgres(self.data.path / "postgres", port=port, durable=self._durable)

    def _make_valkey(self, port: int | None = None) -> Valkey:
        return Valkey(self.data.path / "valkey", port=port, persistent=self._durable)

    def _plan(self) -> dict[str, _Own]:
        plan: dict[str, _Own] = {}
        if self._with_api:
            own = {"database_operator_url": self.database_url("relay"), "inline_models": "1"}
            plan["api"] = self._process("api", ["api"], "app", own)
            plan["api"].bind = "bind"
            plan["api"].listen_on(self._port or _port(API_PORT))
        for group in self._groups:
            plan[group.name] = self._process(group.name, ["worker", group.name], "app")
        plan["relay"] = self._process("relay", ["relay"], "relay")
        plan["exporter"] = self._process("exporter", ["exporter"], "exporter")
        plan["exporter"].bind = "exporter_bind"
        plan["exporter"].listen_on(_port(EXPORTER_PORT))
        if self._with_rehearsal:
            plan["rehearsal"] = self._process("rehearsal", ["rehearsal"])
            plan["rehearsal"].bind = "rehearsal_bind"
            plan["rehearsal"].listen_on(_port(REHEARSAL_PORT))
        return plan

    def _process(self, name: str, command: list[str], role: str = "", more: Mapping[str, str] | None = None) -> _Own:
        """Without a `role` it speaks to neither server."""
        servers = {"database_url": self.database_url(role), "redis_url": self.redis_url} if role else {}
        environment = child_environment(
            **{
                **servers,
                "log": "text",
                "shutdown_seconds": str(FINISH_S),
                **(more or {}),
                **self._settings,
                **self._extra.get(name, {}),
            }
        )
        return _Own(command, environment, self.data.log(name))

    def _await_first_ready(self) -> None:
        """As `await_ready`; who finds its port taken meanwhile is moved to another, unless a person chose that port."""
        for _ in range(ATTEMPTS - 1):
            try:
                self.await_ready()
            except CannotStart:
                if not self._move():
                    raise
            else:
                return
        self.await_ready()

    def _grant_rehearsal(self) -> None:
        with Database(self.database_url("owner"), name="up", size=1) as db, db.system() as tx:
            if (tenant := first_tenant(tx)) is not None:
                grant(tx, tenant.id, self.rehearsal_url)

    def _move(self) -> bool:
        moved = False
        for name, own in self._own.items():
            chosen = name == "api" and self._port is not None
            dead = own.child is not None and own.child.poll() is not None
            if own.bind and dead and not chosen and not is_free(int(own.address.rpartition(":")[2])):
                own.listen_on(free_port())
                own.launch()
                moved = True
        return moved


def _reap(db: Database, dead: Callable[[Row], bool]) -> int:
    """Makes the claims of those processes due and forgets them; how many claims there were."""
    with db.direct() as tx:
        return sum(tx.value("reap_process", process=row["process_id"]) for row in tx.rows("processes") if dead(row))


def _port(usual: int) -> int:
    return usual if is_free(usual) else free_port()
