"""The contents of the generated files: CRDs, RBAC roles and reference pages.

Kinds, permissions and settings are declared next to the code they concern; here they are only collected and rendered.
Nothing here writes a file: `vmafx crd` does. Only the chart's values.yaml is read, which is a declaration too.

    files.py         every generated file: its path and its content
    roles.py         Roles and ClusterRoles
    chart.py         parts of the Helm chart: templates, the schema of its values, its README
    chart_values.py  the values of the chart, with what the comments of values.yaml say
    chart_schema.py  the schema of the values
    reference.py     docs/api.md: every field of every kind
    environment.py   docs/environment.md: every environment variable of every role
"""
