"""The permissions of the operator, in full: a change of them has to be made here as well."""

from vmafx.generate import roles

READ = "get list watch"
APPLY = f"{READ} create patch delete"
OPERATOR = {
    ("", "nodes"): READ,
    ("", "persistentvolumeclaims"): APPLY,
    ("", "pods"): f"{READ} create delete",
    ("", "secrets"): "create",
    ("", "secrets", "vmafx-samples"): "get patch",
    ("", "serviceaccounts"): APPLY,
    ("", "services"): APPLY,
    ("apps", "deployments"): APPLY,
    ("autoscaling", "horizontalpodautoscalers"): APPLY,
    ("discovery.k8s.io", "endpointslices"): "list",
    ("events.k8s.io", "events"): "create patch",
    ("gateway.networking.k8s.io", "gateways"): READ,
    ("gateway.networking.k8s.io", "httproutes"): APPLY,
    ("policy", "poddisruptionbudgets"): APPLY,
    ("vmafx.dev", "vmafxjobs"): f"{READ} delete",
    ("vmafx.dev", "vmafxjobs/finalizers"): "update",
    ("vmafx.dev", "vmafxjobs/status"): "patch",
    ("vmafx.dev", "vmafxmodeltrainings"): READ,
    ("vmafx.dev", "vmafxmodeltrainings/finalizers"): "update",
    ("vmafx.dev", "vmafxmodeltrainings/status"): "patch",
    ("vmafx.dev", "vmafxnodes"): f"{READ} delete",
    ("vmafx.dev", "vmafxnodes/status"): "patch",
    ("vmafx.dev", "zerfooinferenceservices"): READ,
    ("vmafx.dev", "zerfooinferenceservices/finalizers"): "update",
    ("vmafx.dev", "zerfooinferenceservices/status"): "patch",
}
LEADER_ELECTION = {
    ("coordination.k8s.io", "leases"): "create",
    ("coordination.k8s.io", "leases", "vmafx-operator.vmafx.dev"): "get patch watch",
}


def permissions(role: roles.Role) -> dict[tuple[str, ...], set[str]]:
    """The verbs by group and resource, and by name where a rule has names."""
    found: dict[tuple[str, ...], set[str]] = {}
    for rule in role["rules"]:
        assert rule.keys() <= {"apiGroups", "resources", "verbs", "resourceNames"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                names = rule.get("resourceNames")
                keys = [(group, resource, name) for name in names] if names else [(group, resource)]
                for key in keys:
                    found.setdefault(key, set()).update(rule["verbs"])
    return found


def test_the_operator_has_these_permissions_and_no_others() -> None:
    everywhere, own_namespace = roles.operator_roles()
    assert (everywhere["kind"], own_namespace["kind"]) == ("ClusterRole", "Role")
    assert permissions(everywhere) == {key: set(verbs.split()) for key, verbs in OPERATOR.items()}
    assert permissions(own_namespace) == {key: set(verbs.split()) for key, verbs in LEADER_ELECTION.items()}
