"""Install RabbitMQ 4.x from Debian's packages into a chroot of its own, for the benchmarks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SUITE = "trixie"
VERSION = "4."
DATA = "/srv/bench"
BUILD = """
debootstrap --variant=minbase "$1" "$2" "$3"
printf '#!/bin/sh\\nexit 101\\n' >"$2/usr/sbin/policy-rc.d"
chmod 755 "$2/usr/sbin/policy-rc.d"
mount -t proc proc "$2/proc"
chroot "$2" apt-get install -y --no-install-recommends rabbitmq-server
chroot "$2" apt-get clean
printf '127.0.0.1 localhost\\n' >"$2/etc/hosts"
mkdir -p "$2$4"
"""


class PeerError(RuntimeError):
    """RabbitMQ cannot be had or does not run here; the text says why."""


def default_root() -> Path:
    """Return the chroot's place: rabbitmq in PARTIBUS_BENCH_CACHE or in the user's cache."""
    cache = os.environ.get("PARTIBUS_BENCH_CACHE")
    return (Path(cache) if cache else Path.home() / ".cache/partibus-bench") / "rabbitmq"


def run(
    argv: Sequence[str], env: Mapping[str, str] | None = None, timeout: float | None = None
) -> str:
    """Run a command to its end and return what it prints; raise PeerError where it fails."""
    try:
        done = subprocess.run(
            argv, input="", env=env, timeout=timeout, capture_output=True, text=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(str(error)) from error
    if done.returncode:
        tail = (done.stdout + done.stderr).strip()[-2000:]
        raise PeerError(f"{argv[0]} failed with code {done.returncode}:\n{tail}")
    return done.stdout


def version(root: Path | None = None) -> str:
    """Return the package version of the RabbitMQ in the chroot, empty where there is none."""
    status = (root or default_root()) / "var/lib/dpkg/status"
    text = status.read_text() if status.is_file() else ""
    package = text.partition("Package: rabbitmq-server\n")[2]
    return package.partition("\nVersion: ")[2].partition("\n")[0]


def _mirror() -> str:
    fields = "$(RELEASE) $(COMPONENT) $(REPO_URI)"
    targets = run(["apt-get", "indextargets", "--no-release-info", "--format", fields])
    for release, component, uri in map(str.split, targets.splitlines()):
        if component == "main" and "-" not in release:
            return uri
    raise PeerError("apt has no main archive configured to install RabbitMQ from")


def need_root() -> None:
    """Raise PeerError for anybody but root."""
    if os.geteuid() != 0:
        raise PeerError("the RabbitMQ peer lives in a chroot: it needs root")


def install(root: Path | None = None, suite: str = SUITE) -> str:
    """Make the chroot with RabbitMQ where it is not there yet; return the version it has."""
    root = root or default_root()
    if got := version(root):
        return got
    need_root()
    if not shutil.which("apt-get"):
        raise PeerError("the RabbitMQ peer comes from Debian's packages: there is no apt-get here")
    if not shutil.which("debootstrap"):
        run(["apt-get", "update"])
        run(["apt-get", "install", "-y", "--no-install-recommends", "debootstrap"])
    partial = root.with_name(root.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    args = ["sh", suite, str(partial), _mirror(), DATA]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    run(["unshare", "--mount", "--fork", "sh", "-ec", BUILD, *args], env=quiet)
    if not (got := version(partial)).startswith(VERSION):
        raise PeerError(f"{suite} has RabbitMQ {got or 'not at all'}, the peer is {VERSION}x")
    partial.rename(root)
    return got
