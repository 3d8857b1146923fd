"""scikit-learn shells: validate, delegate, name the results."""
