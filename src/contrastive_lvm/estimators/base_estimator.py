"""The base of all estimators: scikit-learn's, with a model file and a view in notebooks."""

from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Any, Self, TypeVar, cast

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags

from contrastive_lvm.estimators.display import card_of
from contrastive_lvm.io.model_files import Saveable

Method = TypeVar("Method", bound=Callable[..., Any])


def all_or_nothing(fit: Method) -> Method:
    """Decorate `fit` to work on a shallow copy, whose attributes are taken over at the end.

    A fit that ends early leaves the estimator as it was: unfitted, or with all results of an
    earlier fit.
    """

    @wraps(fit)
    def fit_copy(self: "Estimator", *arguments: Any, **options: Any) -> Any:
        trial = object.__new__(type(self))
        vars(trial).update(vars(self))
        fit(trial, *arguments, **options)
        self.__dict__ = vars(trial)  # a single step that no signal can interrupt
        return self

    return cast("Method", fit_copy)


class Estimator(Saveable, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer that can be saved, and that shows its results in notebooks.

    The card of a fitted estimator stands above scikit-learn's diagram; diagrams of pipelines are
    scikit-learn's own. `sklearn.set_config(display="text")` turns both off.
    """

    @property
    def _repr_html_(self) -> Callable[[], str]:
        diagram = super()._repr_html_
        return lambda: card_of(self) + diagram()

    def _repr_mimebundle_(self, **options: object) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] = card_of(self) + bundle["text/html"]
        return bundle

    def _without_rows(self) -> Self:
        """Copy the estimator without what grows with its data, and without names of features.

        Chunks of rows have no names, and have been compared with the model's already.
        """
        light = copy(self)
        for name in ("feature_names_in_", "state_"):
            vars(light).pop(name, None)
        return light

    def _check_row_options(self, n_rows: int, options: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments of a method that have a value for each row, and return them."""
        return {}

    def __sklearn_tags__(self) -> Tags:
        """Accept sparse rows and missing entries."""
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags
