"""Write docs/support.md: which engine fits which combination, asked of the engines themselves.

Run with `python docs/make_support.py`; a test checks that the page is up to date.
"""

from pathlib import Path

import contrastive_lvm as clvm

LIKELIHOODS = {
    "Gaussian": clvm.Gaussian(),
    'Gaussian(noise="feature")': clvm.Gaussian(noise="feature"),
    "StudentT": clvm.StudentT(),
    'StudentT(per="sample")': clvm.StudentT(per="sample"),
    "Poisson, NegativeBinomial": clvm.NegativeBinomial(),
    "Bernoulli": clvm.Bernoulli(),
}
PRIORS = {
    "Flat": clvm.Flat(),
    "ARD": clvm.ARD(),
    "GroupLasso": clvm.GroupLasso(),
    "Horseshoe": clvm.Horseshoe(),
}
ENGINES = {
    "EM": clvm.EM(),
    "VariationalBayes": clvm.VariationalBayes(),
    "SVI": clvm.SVI(),
    "NUTS": clvm.NUTS(),
}


def page() -> str:
    """The page as Markdown."""
    lines = [
        "# What combines with what",
        "",
        "Every likelihood with every pair of priors, complete or with missing entries: the engines",
        'that fit it, in the order in which `inference="auto"` tries them.',
        "`Mixed` combines like the least of its kinds. Written by `docs/make_support.py`.",
        "",
        "| prior on S | prior on W | " + " | ".join(LIKELIHOODS) + " |",
        "|---|---|" + "---|" * len(LIKELIHOODS),
    ]
    for shared, on_shared in PRIORS.items():
        for target, on_target in PRIORS.items():
            cells = []
            for likelihood in LIKELIHOODS.values():
                model = clvm.Model(2, 2, likelihood, on_shared, on_target)
                able = [name for name, engine in ENGINES.items() if not engine.objection(model)]
                cells.append(", ".join(able) or "none")
            lines.append(f"| {shared} | {target} | " + " | ".join(cells) + " |")
    objections = [
        f"- {clvm.EM().objection(clvm.Model(2, 2, shared_prior=clvm.ARD()))}",
        f"- {clvm.VariationalBayes().objection(clvm.Model(2, 2, target_prior=clvm.GroupLasso()))}",
        f"- {clvm.EM().objection(clvm.Model(2, 2, clvm.NegativeBinomial()))}",
        f"- {clvm.NUTS().objection(clvm.Model(2, 2, clvm.Bernoulli()))}",
    ]
    return "\n".join([*lines, "", "Why an engine is not listed:", "", *objections, ""])


if __name__ == "__main__":
    (Path(__file__).parent / "support.md").write_text(page(), encoding="utf-8")
