"""The operator: one folder per kind, and what each of them is allowed to do.

So far here: the permissions, declared beside each controller, and the manifests made from them.
"""
