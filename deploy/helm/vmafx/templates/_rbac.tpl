{{/*
A binding with the name of its role: (dict "root" $ "kind" "Role" or "ClusterRole" "name" NAME "account" ACCOUNT
"component" COMPONENT).
*/}}
{{- define "vmafx.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  {{- include "vmafx.metadata" (dict "root" .root "name" .name "component" .component "clusterScoped" (eq .kind "ClusterRole") "annotations" .annotations) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* The account and the roles of the operator or the controller: (dict "root" $ "role" "operator" "values" VALUES "own" RULES). */}}
{{- define "vmafx.roles" -}}
{{- $name := index (include "vmafx.declared" .root | fromYaml).names .role }}
{{- $namespaced := include (printf "vmafx.rules.%s.namespaced" .role) .root }}
{{- $cluster := include (printf "vmafx.rules.%s.cluster" .role) .root }}
{{- $clusterName := include "vmafx.clusterName" (dict "root" .root "name" $name) }}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "vmafx.metadata" (dict "root" .root "name" $name "component" .role "annotations" (deepCopy (.values.serviceAccountAnnotations | default dict))) | nindent 2 }}
automountServiceAccountToken: false
{{- if .root.Values.rbac.create }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- include "vmafx.metadata" (dict "root" .root "name" $clusterName "component" .role "clusterScoped" true) | nindent 2 }}
rules:
  {{- if not .root.Values.namespaced }}
  {{- $namespaced | nindent 2 }}
  {{- end }}
  {{- $cluster | nindent 2 }}
---
{{ include "vmafx.binding" (dict "root" .root "kind" "ClusterRole" "name" $clusterName "account" $name "component" .role) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "vmafx.metadata" (dict "root" .root "name" $name "component" .role) | nindent 2 }}
rules:
  {{- if .root.Values.namespaced }}
  {{- $namespaced | nindent 2 }}
  {{- end }}
  {{- .own | nindent 2 }}
---
{{ include "vmafx.binding" (dict "root" .root "kind" "Role" "name" $name "account" $name "component" .role) }}
{{- end }}
{{- end }}
