"""EM and variational Bayes in closed form."""
