"""The inference library on a real control plane, without the operator."""
