"""The operator: one folder per kind, and what each of them is allowed to do, declared beside it."""
