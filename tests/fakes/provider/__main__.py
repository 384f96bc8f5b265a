"""`python -m tests.fakes.provider --port-file F --log F [--script F]`: the fake as a process of its own.

It writes its port to the first file once it listens, and stops at SIGTERM.
"""

import argparse
import json
import os
import signal
import threading
from pathlib import Path

from tests.fakes.provider.server import Provider


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port-file", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--script", type=Path, help='JSON: {"steps", "default", "chaos", "prices"}')
    given = parser.parse_args()
    script = json.loads(given.script.read_text("utf-8")) if given.script else {}
    charge = {model: (price[0], price[1]) for model, price in script.get("prices", {}).items()}
    fake = Provider(given.log, charge=charge)
    fake.scripted.load(script)
    fake.start()
    part = given.port_file.with_suffix(".part")
    part.write_text(fake.url.rpartition(":")[2], "utf-8")
    os.replace(part, given.port_file)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    stop.wait()
    fake.stop()


if __name__ == "__main__":
    main()
