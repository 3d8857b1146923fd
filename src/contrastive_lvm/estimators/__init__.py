"""scikit-learn estimators: they validate, call the layers below, and publish the results."""
