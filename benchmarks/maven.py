"""Jars from Maven Central: fetched once, with all that they need, and kept in the cache.

~/.cache/headrace/<name>/<version>/*.jar
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace"
DOWNLOAD_SECONDS = 600
JAVA_MAJOR_MIN = 17

PROJECT_FILE = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>jars</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
      {exclusions}
    </dependency>
"""
ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


class NoJars(Exception):
    """They cannot be had here; says why."""


def artifact(name: str, *, alone: bool = False) -> str:
    """An entry of the project file for `group:artifact:version`; alone, without what it needs."""
    group, artifact, version = name.split(":")
    return DEPENDENCY.format(
        group=group, artifact=artifact, version=version, exclusions=ALONE if alone else ""
    )


def jars(folder: Path, dependencies: Iterable[str], what: str) -> Path:
    """The folder, filled from Maven if it is not there; NoJars if that cannot be done."""
    if folder.exists():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJars(f"mvn, which fetches {what}, is not installed")
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        (partial / "pom.xml").write_text(PROJECT_FILE.format(dependencies="".join(dependencies)))
        print(f"fetching {what} from Maven", file=sys.stderr)
        done = subprocess.run(
            [
                maven, "--batch-mode", "--file", partial / "pom.xml",
                "dependency:copy-dependencies", "-DincludeScope=runtime",
                f"-DoutputDirectory={partial}",
            ],
            # Maven's own lines are the progress.
            stdout=sys.stderr,
            check=False,
            timeout=DOWNLOAD_SECONDS,
        )  # fmt: skip
        if done.returncode:
            raise NoJars(f"{what} cannot be fetched from Maven")
        # Of two that fetch at the same time, one wins.
        if not folder.exists():
            partial.rename(folder)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoJars(f"{what} cannot be fetched: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def check_java() -> None:
    """NoJars unless there is a Java that is new enough."""
    if shutil.which("java") is None:
        raise NoJars("java is not installed")
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = said.partition('"')[2].partition('"')[0].split(".")[0]
    if not version.isdecimal() or int(version) < JAVA_MAJOR_MIN:
        raise NoJars(f"Java {JAVA_MAJOR_MIN} is needed; here is {version}")
