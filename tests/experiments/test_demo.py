"""The demo: the contrastive methods find the subgroups that PCA does not."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from contrastive_lvm.experiments import DemoResult, draw_demo, run_demo

SEEDS = (0, 1, 2, 3, 4)


@pytest.fixture(scope="module", params=SEEDS)
def result(request: pytest.FixtureRequest) -> DemoResult:
    return run_demo(random_state=request.param)


def test_holds_the_data_and_two_dimensions_from_each_method(result: DemoResult) -> None:
    assert [method.name for method in result.methods] == ["PCA", "cPCA", "cLVM"]
    assert result.data.target.shape == result.data.background.shape == (400, 30)
    for method in result.methods:
        assert method.latents.shape == (400, 2)
        assert np.isfinite(method.latents).all()
        assert method.seconds > 0


def test_clvm_separates_the_subgroups_and_pca_does_not(result: DemoResult) -> None:
    pca, cpca, clvm = result.methods
    assert clvm.silhouette > 0.5
    assert clvm.ari > 0.9
    assert cpca.silhouette > 0.5
    assert pca.silhouette < 0.1
    assert pca.ari < 0.1


def test_clvm_separates_at_least_as_well_as_cpca(result: DemoResult) -> None:
    _, cpca, clvm = result.methods
    assert clvm.silhouette >= cpca.silhouette
    assert clvm.ari >= cpca.ari


def test_one_seed_gives_one_answer() -> None:
    first, second = run_demo(random_state=7), run_demo(random_state=7)
    for one, other in zip(first.methods, second.methods, strict=True):
        np.testing.assert_array_equal(one.latents, other.latents)
        assert (one.silhouette, one.ari) == (other.silhouette, other.ari)
    another = run_demo(random_state=8)
    assert not np.array_equal(first.data.target, another.data.target)


def test_picture_has_a_panel_for_each_method_with_the_papers_names() -> None:
    figure = draw_demo(run_demo())
    assert isinstance(figure, Figure)
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert [title.split()[0] for title in titles] == ["PCA", "cPCA", "cLVM"]
    assert {text.get_text() for text in figure.axes[2].texts} == {"A", "B", "C", "D"}


@pytest.mark.parametrize("seed", [-1, -(10**9)])
def test_negative_seed_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=f"random_state={seed} must be an integer"):
        run_demo(random_state=seed)
