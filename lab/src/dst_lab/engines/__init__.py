"""Where a plan's runs are trained."""
