"""Write docs/support.md: which engine fits which combination.

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
    "Ridge": clvm.Ridge(),
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
        "# Which engine fits which model",
        "",
        "The table lists the engines that fit each likelihood with each pair of priors, in the",
        'order in which `inference="auto"` tries them. They fit complete rows and rows with',
        "missing entries. An engine fits `Mixed` if it fits all of its kinds.",
        "`docs/make_support.py` writes this page.",
        "",
        "| prior on S | prior on W | " + " | ".join(LIKELIHOODS) + " |",
        "|---|---|" + "---|" * len(LIKELIHOODS),
    ]
    for shared, on_shared in PRIORS.items():
        for target, on_target in PRIORS.items():
            entries = []
            for likelihood in LIKELIHOODS.values():
                model = clvm.contrastive_model(2, 2, likelihood, on_shared, on_target)
                able = [
                    name
                    for name, engine in ENGINES.items()
                    if engine._unsupported_reason(model) is None
                ]
                entries.append(", ".join(able) or "none")
            lines.append(f"| {shared} | {target} | " + " | ".join(entries) + " |")
    refused = [
        (clvm.EM(), clvm.contrastive_model(2, 2, shared_prior=clvm.ARD())),
        (clvm.VariationalBayes(), clvm.contrastive_model(2, 2, target_prior=clvm.GroupLasso())),
        (clvm.NUTS(), clvm.contrastive_model(2, 2, clvm.Bernoulli())),
    ]
    reasons = [f"- {engine._unsupported_reason(model)}" for engine, model in refused]
    return "\n".join([*lines, "", "Why an engine is missing:", "", *reasons, ""])


if __name__ == "__main__":
    (Path(__file__).parent / "support.md").write_text(page(), encoding="utf-8")
