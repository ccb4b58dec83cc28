"""Writes the pages of the reference."""

from __future__ import annotations

import sys

from scripts.generate_reference.pages import FOLDER, generate


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in generate().items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name, file=sys.stderr)


if __name__ == "__main__":
    main()
