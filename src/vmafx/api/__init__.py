"""The four kinds of vmafx.dev/v1, each declared once as msgspec Structs, and their CRDs.

Decoding, validation, the CRD schema, `kubectl explain` and docs/api.md are generated from these declarations.
This package does no I/O and knows no Kubernetes client.

    crd.py         the CustomResourceDefinition of a kind
    fields.py      annotations and scalar types for declaring fields
    hardware.py    vendors, their backends and Pod resources
    inference.py   ZerfooInferenceService
    job.py         VmafxJob
    kinds.py       the four kinds as a list
    meta.py        metadata, conditions and the declaration of a kind
    node.py        VmafxNode
    pod.py         the Pod fields that a VmafxNode may set
    rbac.py        permissions as RBAC rules
    restricted.py  what every Pod of vmafx has in common
    schema.py      Structs to structural OpenAPI schemas
    scoring.py     the clips to score and the scoring options
    training.py    VmafxModelTraining
    units.py       durations and quantities as numbers
    validation.py  objects validated in Python, by the same declarations
    views.py       Structs without validation, for caches
"""
