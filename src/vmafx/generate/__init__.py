"""The contents of the generated files: CRDs, RBAC roles and reference pages.

Kinds, permissions and settings are declared next to the code they concern; here they are only collected and rendered.
Nothing here reads or writes a file: `vmafx crd` does.

    files.py        every generated file: its path and its content
    roles.py        Roles and ClusterRoles
    reference.py    docs/api.md: every field of every kind
    environment.py  docs/environment.md: every environment variable of every role
"""
