"""What is generated from declarations: the CRDs, the roles, and pages of the docs.

    files.py        the one list: each file, and what it is made from
    roles.py        permissions, collected from the roles and written as Kubernetes has them
    reference.py    docs/api.md: every field of every kind
    environment.py  docs/environment.md: every variable of every role

Kinds, permissions and settings are declared beside the code that they are about, and only collected here.
Nothing here reads or writes a file: `vmafx crd` does.
"""
