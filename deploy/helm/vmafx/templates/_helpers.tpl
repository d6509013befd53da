{{/* Names, labels and images. */}}

{{- define "vmafx.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* The name of the workload's objects. At most 40 characters: Pods, claims and agents have suffixes. */}}
{{- define "vmafx.fullname" -}}
{{- $name := printf "%s-%s" .Release.Name (include "vmafx.name" .) }}
{{- if .Values.fullnameOverride }}
{{- $name = .Values.fullnameOverride }}
{{- else if contains (include "vmafx.name" .) .Release.Name }}
{{- $name = .Release.Name }}
{{- end }}
{{- if has $name (list (include "vmafx.operatorName" .) (include "vmafx.controllerName" .)) }}
{{- fail (printf "the workload would have the name of the operator or the controller, %s: use another release name, or set fullnameOverride" $name) }}
{{- end }}
{{- $name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* What the templates repeat from the code, as YAML: names, ports, vendors, security contexts. See _generated.tpl. */}}
{{- define "vmafx.operatorName" -}}{{ (include "vmafx.declared" . | fromYaml).names.operator }}{{- end }}
{{- define "vmafx.controllerName" -}}{{ (include "vmafx.declared" . | fromYaml).names.controller }}{{- end }}
{{- define "vmafx.port" -}}
{{- index (include "vmafx.declared" .root | fromYaml).ports .name | int }}
{{- end }}

{{/* Labels that select the Pods of a component: (dict "root" $ "component" "operator"). */}}
{{- define "vmafx.selectorLabels" -}}
app.kubernetes.io/name: {{ include "vmafx.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Those of the values may replace the others, but not the labels by which ServiceMonitors and people find the objects. */}}
{{- define "vmafx.labels" -}}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: vmafx
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{ include "vmafx.selectorLabels" . }}
{{- end }}

{{/* The metadata of an object: (dict "root" $ "name" NAME "component" COMPONENT "annotations" MAP "labels" MAP). */}}
{{- define "vmafx.metadata" -}}
name: {{ .name }}
{{- if not .clusterScoped }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
labels:
  {{- mustMergeOverwrite (include "vmafx.labels" . | fromYaml) (.labels | default dict) | toYaml | nindent 2 }}
{{- with mustMergeOverwrite (deepCopy (.root.Values.commonAnnotations | default dict)) (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "vmafx.component" -}}
{{- get (dict "Deployment" "server" "Job" "batch" "StatefulSet" "mcp") .Values.workload }}
{{- end }}

{{- define "vmafx.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "vmafx.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Images. */}}

{{- define "vmafx.repository" -}}
{{- coalesce .Values.image.repository .Values.operator.image.repository "vmafx-operator" }}
{{- end }}

{{- define "vmafx.defaultTag" -}}
{{- coalesce .Values.image.tag (.Values.operator.image.tag | default "" | trimSuffix "-operator") .Chart.AppVersion }}
{{- end }}

{{/* That tag with the suffix of a vendor instead of that of another: (dict "root" $ "vendor" VENDOR). */}}
{{- define "vmafx.vendorTag" -}}
{{- $vendors := (include "vmafx.declared" .root | fromYaml).vendors }}
{{- $tag := include "vmafx.defaultTag" .root }}
{{- with (get $vendors .vendor | default dict).variant }}
{{- range $vendors }}{{ $tag = trimSuffix .variant $tag }}{{ end }}
{{- $tag = print (trimSuffix "-operator" $tag) . }}
{{- end }}
{{- $tag }}
{{- end }}

{{/* The image of what runs on the devices of a vendor, without an image of its own: (dict "root" $ "vendor" VENDOR). */}}
{{- define "vmafx.vendorImage" -}}
{{- $digest := .root.Values.image.digest }}
{{- $own := .root.Values.operator.image }}
{{- /* The operator's digest goes with its repository and its tag, but is not that of a variant. */}}
{{- $repository := include "vmafx.repository" .root }}
{{- $other := or (ne $repository (default $repository $own.repository)) (hasSuffix "-operator" ($own.tag | default "")) }}
{{- if and (eq .vendor "cpu") (not (or $digest .root.Values.image.tag $other)) }}{{ $digest = $own.digest }}{{ end }}
{{- include "vmafx.reference" (dict "repository" $repository "tag" (include "vmafx.vendorTag" .) "digest" $digest) }}
{{- end }}

{{- define "vmafx.reference" -}}
{{- if .digest }}{{ printf "%s@%s" .repository .digest }}{{ else }}{{ printf "%s:%s" .repository .tag }}{{ end }}
{{- end }}

{{/* The image of the workload: a tag that is set is used as it is. */}}
{{- define "vmafx.image" -}}
{{- if .Values.image.tag }}
{{- include "vmafx.reference" (dict "repository" (include "vmafx.repository" .) "tag" .Values.image.tag "digest" .Values.image.digest) }}
{{- else }}
{{- include "vmafx.vendorImage" (dict "root" . "vendor" (include "vmafx.vendor" .)) }}
{{- end }}
{{- end }}

{{/* The image of vmafx without a GPU, of worker Pods and of the controller. */}}
{{- define "vmafx.baseImage" -}}
{{- include "vmafx.vendorImage" (dict "root" . "vendor" "cpu") }}
{{- end }}

{{- define "vmafx.operatorImage" -}}
{{- $own := .Values.operator.image }}
{{- $repository := default (include "vmafx.repository" .) $own.repository }}
{{- $tag := default (include "vmafx.defaultTag" .) $own.tag }}
{{- $digest := $own.digest }}
{{- if not (or $own.digest $own.tag $own.repository) }}{{ $digest = .Values.image.digest }}{{ end }}
{{- include "vmafx.reference" (dict "repository" $repository "tag" $tag "digest" $digest) }}
{{- end }}

{{/* GPUs. */}}

{{/* The vendor of the workload's devices; cpu without GPUs. */}}
{{- define "vmafx.vendor" -}}
{{- ternary .Values.gpu.vendor "cpu" .Values.gpu.enabled }}
{{- end }}

{{/* The resource that a Pod requests to get a GPU of a vendor: (dict "root" $ "vendor" VENDOR). */}}
{{- define "vmafx.resourceOf" -}}
{{- if eq .vendor "intel" }}
{{- .root.Values.gpu.intelResource }}
{{- else }}
{{- with index (include "vmafx.declared" .root | fromYaml).vendors .vendor }}{{ .resource }}{{ end }}
{{- end }}
{{- end }}

{{/* The resource of the workload's GPUs; empty without GPUs. */}}
{{- define "vmafx.gpuResource" -}}
{{- include "vmafx.resourceOf" (dict "root" . "vendor" (include "vmafx.vendor" .)) }}
{{- end }}

{{- define "vmafx.backendOf" -}}
{{- (index (include "vmafx.declared" .root | fromYaml).vendors .vendor).backend }}
{{- end }}

{{/* VMAFX_BACKEND of the workload: cuda, hip, sycl or cpu. */}}
{{- define "vmafx.backendEnvValue" -}}
{{- include "vmafx.backendOf" (dict "root" . "vendor" (include "vmafx.vendor" .)) }}
{{- end }}

{{/* The controller. */}}

{{- define "vmafx.controllerEnabled" -}}
{{- if kindIs "bool" .Values.controller.enabled }}{{ if .Values.controller.enabled }}true{{ end }}
{{- else if .Values.operator.enabled }}true{{ end }}
{{- end }}

{{- define "vmafx.controllerHost" -}}
{{- printf "%s.%s.svc.cluster.local" (include "vmafx.controllerName" .) .Release.Namespace }}
{{- end }}

{{/*
The name of a pool of agents: (dict "root" $ "pool" POOL). At most 52 characters, since names of Pods and revisions have suffixes; a
digest takes the place of what is cut, so that no two pools share a name.
*/}}
{{- define "vmafx.agentName" -}}
{{- $name := printf "%s-agent-%s" (include "vmafx.fullname" .root) .pool }}
{{- if gt (len $name) 52 }}{{ $name = printf "%s-%s" (trunc 43 $name) (sha256sum $name | trunc 8) }}{{ end }}
{{- $name }}
{{- end }}

{{/* A value as the text of a variable: whole numbers without an exponent. */}}
{{- define "vmafx.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/*
Names of objects without a namespace: of one release in the cluster, or of the release of a namespace. They are not cut, so that
no two namespaces share one: names of roles may have 253 characters.
*/}}
{{- define "vmafx.clusterName" -}}
{{- if .root.Values.namespaced }}{{ printf "%s-%s" .name .root.Release.Namespace }}{{ else }}{{ .name }}{{ end }}
{{- end }}

{{/* The type of a Service, and what goes with it: (dict "path" "service" "values" .Values.service). */}}
{{- define "vmafx.serviceType" -}}
type: {{ .values.type }}
{{- $balancer := pick .values "loadBalancerClass" "loadBalancerSourceRanges" }}
{{- range $name, $value := $balancer }}
{{- if $value }}
{{- if ne $.values.type "LoadBalancer" }}{{ fail (printf "%s.%s is for %s.type LoadBalancer, not %s" $.path $name $.path $.values.type) }}{{ end }}
{{ $name }}: {{ toJson $value }}
{{- end }}
{{- end }}
{{- with .values.externalTrafficPolicy }}
{{- if eq $.values.type "ClusterIP" }}{{ fail (printf "%s.externalTrafficPolicy is for %s.type LoadBalancer or NodePort, not ClusterIP" $.path $.path) }}{{ end }}
externalTrafficPolicy: {{ . }}
{{- end }}
{{- end }}
