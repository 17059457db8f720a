"""A second environment with partibus as a wheel, its hot modules compiled."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-bench"
MARK = VENV / ".built-from"


class NotCompiled(RuntimeError):
    """The wheel could not be compiled here; the text says why."""


def _fingerprint() -> str:
    """Changes with every change of what goes into the wheel."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted([ROOT / "pyproject.toml", ROOT / "setup.py", *ROOT.glob("src/**/*.py")]):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _run(*argv: str, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False, cwd=ROOT)
    if done.returncode:
        raise NotCompiled(f"{' '.join(argv[:4])}: {(done.stdout + done.stderr).strip()[-1500:]}")


def compiled_python() -> Path:
    """The interpreter of the environment, made anew where the sources have changed."""
    python = VENV / "bin" / "python"
    wanted = _fingerprint()
    if MARK.exists() and MARK.read_text() == wanted:
        return python
    MARK.unlink(missing_ok=True)
    if not python.exists():
        _run(sys.executable, "-m", "venv", str(VENV))
        (VENV / ".gitignore").write_text("*\n")
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "--quiet")
    with tempfile.TemporaryDirectory() as wheels:
        environment = {**os.environ, "PARTIBUS_COMPILE": "1"}
        _run(*pip, "wheel", "--no-deps", "--wheel-dir", wheels, ".", env=environment)
        (wheel,) = Path(wheels).glob("partibus-*.whl")
        _run(*pip, "install", "--force-reinstall", "--no-deps", str(wheel))
        _run(*pip, "install", str(wheel))
    if not list(VENV.glob("lib/*/site-packages/partibus/wire/*.so")):
        raise NotCompiled("the wheel has no compiled modules")
    MARK.write_text(wanted)
    return python
