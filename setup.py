"""Compiles the hot modules when a wheel is built; everything else is said in pyproject.toml.

mypyc turns typed modules into C extensions. The modules stay plain Python and run uncompiled
wherever there is no compiler, in an editable install, and with PARTIBUS_COMPILE=0. With
PARTIBUS_COMPILE=1 a wheel that cannot be compiled is an error.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import setup

# The modules worth compiling, on measurement: those that see every message.
HOT_ROOMS = {
    "wire": "codec frames message_build message_patch message_properties message_scan octets"
    " transfer",
    "engine": "channels connection delivery endpoint handshake link output session states",
    "broker": "records window locks fragment transfers sessions session_fragment topic_fragment",
    "store": "writing",
    "runtime": "dispenser session_dispenser",
}
HOT_MODULES = tuple(
    f"src/partibus/{room}/{name}.py" for room, names in HOT_ROOMS.items() for name in names.split()
)

# Each build begins in a new place: compiled files of an earlier list of modules do not mix with
# those of this one.
BUILD = tempfile.mkdtemp(prefix="partibus-build-")
atexit.register(shutil.rmtree, BUILD, ignore_errors=True)

wanted = os.environ.get("PARTIBUS_COMPILE", "auto")


def compiler() -> str | None:
    """The C compiler that extensions would be built with, where there is one."""
    named = (sysconfig.get_config_var("CC") or "").split()
    return next(filter(None, map(shutil.which, [*named[:1], "cc", "gcc", "clang"])), None)


def extensions() -> list[object]:
    """The compiled forms of the hot modules, or nothing where they are not to be compiled."""
    # Only a wheel: an editable install would leave compiled files beside the sources.
    if wanted == "0" or "bdist_wheel" not in sys.argv:
        return []
    modules = [path for path in HOT_MODULES if Path(path).exists()]
    if wanted != "1" and compiler() is None:
        sys.stderr.write("partibus: building without compiled modules (no C compiler)\n")
        return []
    try:
        from mypyc.build import mypycify

        found: list[object] = mypycify(
            modules, opt_level="3", strip_asserts=False, target_dir=BUILD
        )
    except (ImportError, SystemExit) as error:
        if wanted == "1":
            raise
        sys.stderr.write(f"partibus: building without compiled modules ({error})\n")
        return []
    if wanted != "1":
        for extension in found:
            # A failing compiler then costs speed, not the installation.
            extension.optional = True  # type: ignore[attr-defined]
    return found


setup(ext_modules=extensions(), options={"build": {"build_base": BUILD}})
