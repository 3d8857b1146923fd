"""The base of all estimators: scikit-learn's, with a model file and a view in notebooks."""

from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from contrastive_lvm.estimators.display import card_of
from contrastive_lvm.io.model_files import Saveable


class Estimator(Saveable, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer that can be saved, and that shows what it found in a notebook.

    The card of a fitted estimator stands above scikit-learn's diagram; diagrams of pipelines are
    scikit-learn's own. `sklearn.set_config(display="text")` turns both off.
    """

    @property
    def _repr_html_(self) -> Callable[[], str]:
        diagram = super()._repr_html_
        return lambda: card_of(self) + diagram()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] = card_of(self) + bundle["text/html"]
        return bundle

    def __sklearn_tags__(self) -> Any:
        """Accept sparse rows and missing entries."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags
