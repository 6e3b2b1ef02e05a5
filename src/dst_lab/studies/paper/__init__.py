"""The paper on decoupled straight-through estimators: its three tasks, and its claims."""
