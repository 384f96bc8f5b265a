"""Every granted profile has its key at the workers that send it: by their own report, which names variables and no values."""

from collections.abc import Mapping, Sequence

from core.doctor.model import OK, SKIPPED, WRONG, Finding
from core.models.catalogue import Filed, read_file
from core.models.granting import Keyed, keyed
from core.settings import Settings, SettingsError
from core.store.database import Row, Tx

NAME = "model-keys"
STAGES = {False: {"read", "extract", "link"}, True: {"read", "embed"}}
"""Which work asks models, and which (True) embeds."""
LISTED = 5


def profiles(tx: Tx, settings: Settings) -> list[Keyed] | SettingsError:
    """The granted profiles that send a key; what is wrong with the file MUNIMENT_MODELS as it is set here."""
    try:
        filed: Mapping[str, Filed] = read_file(settings.models, settings.key_envs)
    except SettingsError as error:
        return error
    return keyed(tx, filed)


def check_keys(wanted: Sequence[Keyed] | SettingsError, alive: Sequence[Row]) -> Finding:
    """`alive`: processes that report. One that says nothing of keys is of another version, and is left out."""
    if isinstance(wanted, SettingsError):
        return Finding(NAME, SKIPPED, f"as set here, {wanted.detail}")
    missing: list[str] = []
    asked = 0
    for profile in wanted:
        askers = [row for row in alive if row["key_envs"] is not None and _stages(row) & STAGES[profile.embeds]]
        asked += bool(askers)
        without = [
            f"{row['role']} on {row['host']} (pid {row['pid']})"
            for row in askers
            if profile.variable not in row["key_envs"]
        ]
        if without:
            missing.append(f"profile {profile.name}: {profile.variable} holds no key at {_first(without, ', ')}")
    if missing:
        return Finding(
            NAME, WRONG, _first(missing, "; "), "model-key-missing",
            "set the variable to the key, and list its name in MUNIMENT_MODEL_KEY_ENVS, in the environment of these "
            "workers, and restart them; or delete the profile: `muniment models delete`",
        )  # fmt: skip
    if asked < len(wanted):
        return Finding(NAME, SKIPPED, "no live worker says which keys it has")
    if not wanted:
        return Finding(NAME, OK, "no granted profile needs a key")
    return Finding(
        NAME, OK, f"every worker has the keys of the profiles that it asks (profiles with a key: {len(wanted)})"
    )


def _stages(row: Row) -> set[str]:
    return {queue.partition(".")[0] for queue in row["queues"]}


def _first(parts: Sequence[str], separator: str) -> str:
    more = len(parts) - LISTED
    return separator.join(parts[:LISTED]) + (f"{separator}{more} more" if more > 0 else "")
