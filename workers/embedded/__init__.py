"""The local stack: a private Postgres and a private Valkey as children of this process, from pip-installed binaries.

Each server has its own folder, a free loopback port and a random password, drops root, and ends when its owner ends,
even when the owner is killed.
"""
