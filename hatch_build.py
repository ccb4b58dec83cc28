"""Builds the compiled twins: every .pyx under src/headrace becomes a module.

    wheel       the modules lie in the wheel, which is then for one platform
    editable    they lie beside their sources, where an editable install looks
    neither     without a compiler or Cython, or with HEADRACE_PURE=1, the wheel
                is pure Python, and so is what it installs

    .venv/bin/python hatch_build.py     builds in place, for whoever edits a .pyx

Nothing depends on the twins being there (src/headrace/compiled.py), so a build that
fails is a note and not an error.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "headrace"


class CompiledTwins(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        source = Path(self.root) / "src"
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-build-"))
        built = build(source, self._folder)
        if version == "editable":
            place(built, source)
        elif built:
            self._add_to_wheel(built, build_data)

    def _add_to_wheel(self, built: dict[Path, Path], build_data: dict[str, Any]) -> None:
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"] |= {str(path): str(name) for name, path in built.items()}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.target_name == "wheel":
            shutil.rmtree(self._folder, ignore_errors=True)


def build(source: Path, folder: Path) -> dict[Path, Path]:
    """The modules' places below the source folder, and where they were built."""
    if os.environ.get("HEADRACE_PURE", "") not in ("", "0"):
        return {}
    sources = sorted(path.relative_to(source) for path in (source / PACKAGE).rglob("*.pyx"))
    try:
        return compile_all(source, sources, folder)
    except (Exception, SystemExit) as error:
        why = "Cython is missing" if isinstance(error, ImportError) else "compiling failed"
        print(f"headrace: {why}, so this build is plain Python: it does the same, more slowly")
        return {}


def compile_all(source: Path, sources: list[Path], folder: Path) -> dict[Path, Path]:
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    extensions = [
        Extension(
            ".".join(path.with_suffix("").parts),
            [str(source / path)],
            extra_compile_args=["-O3", "-g0"],
        )
        for path in sources
    ]
    modules = cythonize(
        extensions, build_dir=str(folder / "c"), include_path=[str(source)], quiet=True
    )
    command = build_ext(Distribution({"name": PACKAGE, "ext_modules": modules}))
    command.build_lib = str(folder / "lib")
    command.build_temp = str(folder / "objects")
    command.ensure_finalized()
    command.run()
    made = (Path(command.get_ext_fullpath(extension.name)) for extension in extensions)
    return {path.relative_to(folder / "lib"): path for path in made}


def place(built: dict[Path, Path], source: Path) -> None:
    """Puts them beside their sources, and removes those of an earlier build that
    would go on hiding what their sources say now."""
    for old in (source / PACKAGE).rglob("*_compiled.*.so"):
        if old.relative_to(source) not in built:
            old.unlink()
    for name, path in built.items():
        # A process that runs the old one keeps it: the name moves to a new file.
        beside = (source / name).with_suffix(".new")
        shutil.copy2(path, beside)
        beside.replace(source / name)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="headrace-build-") as scratch:
        here = Path(__file__).resolve().parent / "src"
        made = build(here, Path(scratch))
        place(made, here)
    for name in made:
        print(f"built src/{name}")
    sys.exit(0 if made else 1)
