{{/* Also in the chart around this one, whose Job pushes to it. */}}
{{- define "pushgateway.fullname" -}}
{{- default (printf "%s-pushgateway" (.Release.Name | trunc 40 | trimSuffix "-")) .Values.fullnameOverride }}
{{- end }}

{{- define "pushgateway.selectorLabels" -}}
app.kubernetes.io/name: prometheus-pushgateway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pushgateway.metadata" -}}
name: {{ include "pushgateway.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "pushgateway.selectorLabels" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
