"""Write docs/reproduced.md and its pictures: `make reproduce`, about ten minutes on two cores.

Needs the data in $CONTRASTIVE_LVM_DATA. Names of experiments as arguments renew those alone.
"""

import json
import sys
import time
from pathlib import Path

from contrastive_lvm.experiments import NAMES, reproduce
from contrastive_lvm.experiments.markdown import INTRODUCTION, markdown

HERE = Path(__file__).parent
SECTIONS = HERE / "reproduced"  # a file of Markdown and one of numbers for each experiment
PICTURES = HERE / "images"


def main() -> None:
    """Run the experiments and put the page together."""
    SECTIONS.mkdir(exist_ok=True)
    for name in sys.argv[1:] or NAMES:
        begin = time.perf_counter()
        outcome = reproduce(name)
        seconds = round(time.perf_counter() - begin, 1)
        places = {}
        for picture, figure in outcome.figures.items():
            figure.savefig(PICTURES / f"{name}_{picture}.png", dpi=180)
            places[picture] = f"images/{name}_{picture}.png"
        facts = outcome.facts() | {"seconds": seconds}
        _write(SECTIONS / f"{name}.json", json.dumps(facts, indent=1) + "\n")
        _write(SECTIONS / f"{name}.md", markdown(outcome, places))
        sys.stderr.write(f"{name}: {seconds} s\n")
    found = [SECTIONS / f"{name}.md" for name in NAMES]
    parts = [path.read_text(encoding="utf-8") for path in found if path.exists()]
    _write(HERE / "reproduced.md", "\n".join([INTRODUCTION, *parts]))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
