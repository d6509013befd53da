"""VmafxNode: what its controller may do (rbac.py)."""
