{{/* The Pods of the three workloads. */}}

{{/* The Pod template that the Deployment, the Job and the StatefulSet share. */}}
{{- define "vmafx.podTemplate" -}}
{{- $values := .Values }}
{{- $component := include "vmafx.component" . }}
{{- $facts := include "vmafx.declared" . | fromYaml }}
{{- $serves := ne .Values.workload "Job" }}
{{- if hasSuffix "-operator" (.Values.image.tag | default "") }}
{{- fail (printf "image.tag is %s, an image with the operator alone: set operator.image.tag to it, and image.tag to the one of all roles" .Values.image.tag) }}
{{- end }}
{{- $own := get (dict "Deployment" .Values.deployment "Job" .Values.job "StatefulSet" .Values.statefulSet) .Values.workload }}
{{- $ports := list }}
{{- $probes := dict }}
{{- $lifecycle := dict }}
{{- if $serves }}
{{- include "vmafx.checkVariables" . }}
{{- $ports = append $ports (dict "name" "http" "containerPort" (int .Values.service.targetPort) "protocol" "TCP") }}
{{- $probes = include "vmafx.probes" (dict "port" "http" "scheme" (ternary "HTTPS" "HTTP" (ne .Values.tls.secretName "")) "startup" .Values.probes.startupSeconds "period" .Values.probes.periodSeconds "timeout" .Values.probes.timeoutSeconds) | fromYaml }}
{{- end }}
{{- if eq .Values.workload "Deployment" }}
{{- $ports = append $ports (dict "name" "grpc" "containerPort" (int .Values.service.grpcPort) "protocol" "TCP") }}
{{- with .Values.deployment.drainSeconds }}{{ $lifecycle = dict "preStop" (dict "sleep" (dict "seconds" (int .))) }}{{ end }}
{{- end }}
{{- $scratch := dict }}
{{- with .Values.scratch.sizeLimit }}{{ $_ := set $scratch "sizeLimit" . }}{{ end }}
{{- with .Values.scratch.medium }}{{ $_ := set $scratch "medium" . }}{{ end }}
{{- $checksum := dict "vmafx.dev/config-checksum" (toJson .Values.config | sha256sum | trunc 16) -}}
metadata:
  {{- include "vmafx.podMetadata" (dict "root" . "component" $component "values" .Values "annotations" $checksum) | nindent 2 }}
spec:
  {{- include "vmafx.podSpec" (dict
    "root" .
    "component" $component
    "name" (get (dict "Deployment" "server" "Job" "tune" "StatefulSet" "mcp") .Values.workload)
    "image" (include "vmafx.image" .)
    "command" $own.command
    "args" $own.args
    "env" (include "vmafx.workloadEnv" . | fromYamlArray)
    "config" .Values.config
    "variables" .Values.env
    "envFrom" (ternary (list (dict "configMapRef" (dict "name" (include "vmafx.fullname" .)))) list (not (empty .Values.config)))
    "ports" $ports
    "probes" $probes
    "lifecycle" $lifecycle
    "workingDir" (ternary .Values.persistence.output.mountPath $facts.names.scratch (and .Values.persistence.enabled .Values.persistence.output.enabled))
    "mounts" (include "vmafx.workloadMounts" . | fromYamlArray)
    "volumes" (include "vmafx.workloadVolumes" . | fromYamlArray)
    "scratch" $scratch
    "values" .Values
    "vendor" (include "vmafx.vendor" .)
    "gpus" (int .Values.gpu.count)
    "serviceAccount" (include "vmafx.serviceAccountName" .)
    "token" (include "vmafx.workloadToken" .)
    "grace" (int .Values.terminationGracePeriodSeconds)
    "restartPolicy" (ternary "Always" "Never" $serves)
  ) | trim | nindent 2 }}
{{- end }}

{{/* Refuses variables that a value has to set, since other parts of the chart depend on it. */}}
{{- define "vmafx.checkVariables" -}}
{{- $values := dict "PORT" "service.targetPort" "VMAFX_SERVE_GRPC_LISTEN" "service.grpcPort" "VMAFX_MCP_CLUSTER" "statefulSet.cluster" }}
{{- range list "VMAFX_SERVE" "VMAFX_MCP" }}
{{- $_ := mustMerge $values (dict (print . "_HTTP_LISTEN") "service.targetPort" (print . "_AUTH") "auth.mode" (print . "_TLS_CERT") "tls.secretName" (print . "_TLS_KEY") "tls.secretName") }}
{{- end }}
{{- $entries := dict }}
{{- range .Values.extraEnv }}{{ $_ := set $entries .name true }}{{ end }}
{{- range $place, $given := dict "config" .Values.config "env" .Values.env "extraEnv" $entries }}
{{- range $name, $value := $values }}
{{- if hasKey ($given | default dict) $name }}
{{- fail (printf "%s has %s: set %s instead, which the probes, the Service, the account and `helm test` follow too" $place $name $value) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The most replicas of a workload that serves; of a Job, 0. */}}
{{- define "vmafx.replicas" -}}
{{- if eq .Values.workload "StatefulSet" }}{{ int .Values.statefulSet.replicaCount }}
{{- else if eq .Values.workload "Job" }}0
{{- else if .Values.autoscaling.enabled }}{{ int .Values.autoscaling.maxReplicas }}
{{- else }}{{ int .Values.deployment.replicaCount }}{{ end }}
{{- end }}

{{/* Whether the workload calls the API server. */}}
{{- define "vmafx.workloadToken" -}}
{{- if and (ne .Values.workload "Job") (eq .Values.auth.mode "token") }}true
{{- else if and (eq .Values.workload "StatefulSet") .Values.statefulSet.cluster }}true{{ end }}
{{- end }}

{{/*
The names that the workload answers to, separated by commas, in addition to addresses, names without a dot, and those that end
with .svc or .cluster.local.
*/}}
{{- define "vmafx.hosts" -}}
{{- $hosts := .Values.hosts | default list }}
{{- if eq .Values.workload "StatefulSet" }}{{ $hosts = append $hosts (printf "*.%s-headless" (include "vmafx.fullname" .)) }}{{ end }}
{{- if .Values.ingress.enabled }}{{ range .Values.ingress.hosts }}{{ $hosts = append $hosts .host }}{{ end }}{{ end }}
{{- if .Values.httpRoute.enabled }}{{ $hosts = concat $hosts (.Values.httpRoute.hostnames | default list) }}{{ end }}
{{- $hosts | uniq | join "," }}
{{- end }}

{{/* The variables that the chart sets in the workload's container. */}}
{{- define "vmafx.workloadEnv" -}}
{{- $prefix := get (dict "Deployment" "VMAFX_SERVE" "StatefulSet" "VMAFX_MCP" "Job" "") .Values.workload }}
- {name: VMAFX_BACKEND, value: {{ include "vmafx.backendEnvValue" . }}}
{{- with .Values.persistence }}
{{- if .enabled }}
{{- $roots := list }}
{{- if .corpus.enabled }}{{ $roots = append $roots .corpus.mountPath }}{{ end }}
{{- if .models.enabled }}
{{- if $roots }}{{ $roots = append $roots .models.mountPath }}{{ end }}
- {name: VMAFX_MODEL_DIR, value: {{ .models.mountPath | quote }}}
{{- end }}
{{- with $roots }}
- {name: VMAFX_MEDIA_ROOTS, value: {{ join ":" . | quote }}}
{{- end }}
{{- if .output.enabled }}
- {name: VMAFX_OUTPUT_DIR, value: {{ .output.mountPath | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.scratch.sizeLimit }}
- {name: VMAFX_SCRATCH_LIMIT, value: {{ . | quote }}}
{{- end }}
{{- if $prefix }}
- {name: {{ $prefix }}_HTTP_LISTEN, value: ":{{ .Values.service.targetPort | int }}"}
- {name: {{ $prefix }}_AUTH, value: {{ .Values.auth.mode }}}
- {name: {{ $prefix }}_NAMESPACE, value: {{ .Release.Namespace | quote }}}
{{- if eq .Values.auth.mode "keys" }}
- {name: {{ $prefix }}_KEYS, value: /etc/vmafx/keys/keys}
{{- end }}
{{- with include "vmafx.hosts" . }}
- {name: {{ $prefix }}_HOSTS, value: {{ . | quote }}}
{{- end }}
{{- if .Values.tls.secretName }}
- {name: {{ $prefix }}_TLS_CERT, value: /etc/vmafx/tls/tls.crt}
- {name: {{ $prefix }}_TLS_KEY, value: /etc/vmafx/tls/tls.key}
{{- end }}
{{- end }}
{{- if eq .Values.workload "Deployment" }}
- {name: VMAFX_SERVE_GRPC_LISTEN, value: ":{{ .Values.service.grpcPort | int }}"}
- {name: VMAFX_SERVE_GRACE, value: {{ max 0 (sub (sub (int .Values.terminationGracePeriodSeconds) (int .Values.deployment.drainSeconds)) 10) | quote }}}
{{- else if eq .Values.workload "StatefulSet" }}
- {name: VMAFX_MCP_STATE, value: {{ printf "%s/mcp" .Values.persistence.state.mountPath | quote }}}
- {name: VMAFX_MCP_RESULTS_SIZE, value: {{ .Values.statefulSet.resultsSize | quote }}}
- {name: VMAFX_MCP_ENCODES_SIZE, value: {{ .Values.statefulSet.encodesSize | quote }}}
- {name: VMAFX_MCP_CLUSTER, value: {{ .Values.statefulSet.cluster | quote }}}
{{- else if .Values.pushgateway.enabled }}
- {name: VMAFX_PUSHGATEWAY, value: {{ printf "http://%s:%d" (include "vmafx.pushgatewayName" .) (int (.Values.pushgateway.port | default 9091)) | quote }}}
{{- end }}
{{- end }}

{{/* Also the name in the subchart, which cannot see the values of this one. */}}
{{- define "vmafx.pushgatewayName" -}}
{{- default (printf "%s-pushgateway" (.Release.Name | trunc 40 | trimSuffix "-")) (.Values.pushgateway.fullnameOverride) }}
{{- end }}

{{/* The volumes of `persistence` that the workload mounts, with their claims. */}}
{{- define "vmafx.claims" -}}
{{- if .Values.persistence.enabled }}
{{- range $name := list "corpus" "output" "models" }}
{{- $volume := index $.Values.persistence $name }}
{{- if $volume.enabled }}
- name: {{ $name }}
  claim: {{ default (printf "%s-%s" (include "vmafx.fullname" $) $name) $volume.existingClaim }}
  mountPath: {{ $volume.mountPath }}
  readOnly: {{ ne $name "output" }}
  new: {{ empty $volume.existingClaim }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The names of the claims that only the Pods of one Kubernetes node can mount at a time, separated by commas. */}}
{{- define "vmafx.exclusiveClaims" -}}
{{- $names := list }}
{{- range include "vmafx.claims" . | fromYamlArray }}
{{- $modes := (index $.Values.persistence .name).accessModes }}
{{- if not (or (has "ReadWriteMany" $modes) (and .readOnly (has "ReadOnlyMany" $modes))) }}{{ $names = append $names .claim }}{{ end }}
{{- end }}
{{- join ", " $names }}
{{- end }}

{{- define "vmafx.workloadMounts" -}}
{{- range include "vmafx.claims" . | fromYamlArray }}
- {name: {{ .name }}, mountPath: {{ .mountPath | quote }}, readOnly: {{ .readOnly }}}
{{- end }}
{{- if eq .Values.workload "StatefulSet" }}
- {name: state, mountPath: {{ .Values.persistence.state.mountPath | quote }}}
{{- end }}
{{- if ne .Values.workload "Job" }}
{{- if eq .Values.auth.mode "keys" }}
- {name: keys, mountPath: /etc/vmafx/keys, readOnly: true}
{{- end }}
{{- if .Values.tls.secretName }}
- {name: tls, mountPath: /etc/vmafx/tls, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "vmafx.workloadVolumes" -}}
{{- range include "vmafx.claims" . | fromYamlArray }}
- name: {{ .name }}
  persistentVolumeClaim: {claimName: {{ .claim }}}
{{- end }}
{{- if and (eq .Values.workload "StatefulSet") (not .Values.persistence.enabled) }}
- name: state
  emptyDir: {sizeLimit: {{ .Values.persistence.state.size }}}
{{- end }}
{{- if ne .Values.workload "Job" }}
{{- if eq .Values.auth.mode "keys" }}
- name: keys
  secret: {secretName: {{ .Values.auth.keysSecret }}, items: [{key: keys, path: keys}]}
{{- end }}
{{- with .Values.tls.secretName }}
- name: tls
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}
{{- end }}

{{/* The line of a claim with its storage class: `-` for none. */}}
{{- define "vmafx.storageClass" -}}
{{- if eq .storageClass "-" }}
storageClassName: ""
{{- else if .storageClass }}
storageClassName: {{ .storageClass | quote }}
{{- end }}
{{- end }}
