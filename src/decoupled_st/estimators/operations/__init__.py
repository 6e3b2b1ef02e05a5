"""What estimators are made of: noise, temperatures, choices among rows, and the straight-through step."""
