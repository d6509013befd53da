{{/*
The spec of every Pod of the chart. It meets the Pod Security Standard `restricted`: its parts come from the same code as
those of the operator's Pods. Fields of the dict:

  root            the root context
  component       its labels are those of vmafx.selectorLabels
  name            of the container
  image, pullPolicy, command, args, ports, probes, lifecycle, mounts, workingDir
  env             what the chart sets; not what is in config, a map whose ConfigMap is in envFrom
  variables       a map of the values; overrides env, and is overridden by extraEnv
  volumes         in addition to /scratch
  scratch         the emptyDir of /scratch
  values          a part of the values with resources, extraEnv, extraEnvFrom, extraVolumes, extraVolumeMounts,
                  nodeSelector, tolerations, affinity, topologySpreadConstraints, priorityClassName, runtimeClassName
  vendor, gpus    devices of the container
  serviceAccount  its name
  token           whether the container gets the account's token
  grace           seconds between SIGTERM and SIGKILL
  restartPolicy
*/}}
{{- define "vmafx.podSpec" -}}
{{- $facts := include "vmafx.declared" .root | fromYaml }}
{{- $resource := include "vmafx.resourceOf" (dict "root" .root "vendor" (.vendor | default "cpu")) }}
{{- $own := .root.Values.podSecurityContext }}
{{- $pod := $facts.podSecurity }}
{{- range $name := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- if kindIs "invalid" (index $own $name) }}{{ $_ := unset $pod $name }}{{ else }}{{ $_ := set $pod $name (index $own $name) }}{{ end }}
{{- end }}
{{- with $own.supplementalGroups }}{{ $_ := set $pod "supplementalGroups" . }}{{ end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .serviceAccount }}
serviceAccountName: {{ . }}
{{- end }}
{{- if .token }}
automountServiceAccountToken: true
{{- else }}
automountServiceAccountToken: {{ $facts.pod.automountServiceAccountToken }}
{{- end }}
enableServiceLinks: {{ $facts.pod.enableServiceLinks }}
securityContext:
  {{- toYaml $pod | nindent 2 }}
{{- with .restartPolicy }}
restartPolicy: {{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ ternary .grace 30 (hasKey . "grace") }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $tolerations := .values.tolerations | default list }}
{{- /* By convention, the taint that keeps other Pods off GPU nodes has the name of their resource. */}}
{{- with $resource }}{{ $tolerations = append $tolerations (dict "key" . "operator" "Exists" "effect" "NoSchedule") }}{{ end }}
{{- with $tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $selector := dict "matchLabels" (include "vmafx.selectorLabels" $ | fromYaml) }}
  {{- range . }}
  - {{ mustMerge (deepCopy .) (dict "labelSelector" $selector) | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- with .values.extraInitContainers }}
initContainers:
  {{- range . }}
  - {{ mustMerge (deepCopy .) (dict "securityContext" $facts.containerSecurity) | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
containers:
  - name: {{ .name }}
    image: {{ .image | quote }}
    imagePullPolicy: {{ .pullPolicy | default .root.Values.image.pullPolicy }}
    {{- with .command }}
    command:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .args }}
    args:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .workingDir }}
    workingDir: {{ . }}
    {{- end }}
    env:
      {{- include "vmafx.env" . | nindent 6 }}
    {{- with concat (.envFrom | default list) (.values.extraEnvFrom | default list) }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .ports }}
    ports:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .probes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .lifecycle }}
    lifecycle:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- $resources := deepCopy (.values.resources | default dict) }}
    {{- if $resource }}
    {{- $_ := set $resources "limits" (mustMerge (dict $resource (.gpus | toString)) ($resources.limits | default dict)) }}
    {{- end }}
    {{- with $resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- toYaml $facts.containerSecurity | nindent 6 }}
    terminationMessagePolicy: FallbackToLogsOnError
    volumeMounts:
      - {name: {{ $facts.names.scratchVolume }}, mountPath: {{ $facts.names.scratch }}}
      {{- with .mounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with .values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- range .values.extraContainers }}
  - {{ mustMerge (deepCopy .) (dict "securityContext" $facts.containerSecurity) | toYaml | nindent 4 | trim }}
  {{- end }}
volumes:
  - name: {{ $facts.names.scratchVolume }}
    emptyDir:
      {{- toYaml (.scratch | default dict) | nindent 6 }}
  {{- with .volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/*
The `env` of a container: one entry for each name, that of the last source which has it. Server-side apply refuses two.
*/}}
{{- define "vmafx.env" -}}
{{- $config := .config | default dict }}
{{- $entries := list }}
{{- range $name, $value := (include "vmafx.declared" .root | fromYaml).scratchEnvironment }}
{{- $entries = append $entries (dict "name" $name "value" $value) }}
{{- end }}
{{- $sources := list }}
{{- range concat $entries (.env | default list) }}
{{- if not (hasKey $config .name) }}{{ $sources = append $sources . }}{{ end }}
{{- end }}
{{- range $name, $value := .variables }}
{{- $sources = append $sources (dict "name" $name "value" (include "vmafx.text" $value)) }}
{{- end }}
{{- $last := dict }}
{{- $merged := list }}
{{- range reverse (concat $sources (.values.extraEnv | default list)) }}
{{- if not (hasKey $last .name) }}{{ $merged = prepend $merged . }}{{ $_ := set $last .name true }}{{ end }}
{{- end }}
{{- toYaml $merged }}
{{- end }}

{{/* HTTP probes of a container: (dict "port" NAME "scheme" SCHEME "startup" SECONDS "period" N "timeout" N). */}}
{{- define "vmafx.probes" -}}
{{- $period := .period | default 10 | int }}
{{- $timeout := .timeout | default 5 | int }}
{{- range $kind, $path := dict "livenessProbe" "/healthz" "readinessProbe" "/readyz" "startupProbe" "/healthz" }}
{{ $kind }}:
  httpGet: {path: {{ $path }}, port: {{ $.port }}, scheme: {{ $.scheme | default "HTTP" }}}
  timeoutSeconds: {{ $timeout }}
  {{- if eq $kind "startupProbe" }}
  {{- /* Often, so that a Pod is ready as soon as it has started. */}}
  periodSeconds: 2
  failureThreshold: {{ div ($.startup | int) 2 }}
  {{- else }}
  periodSeconds: {{ $period }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The labels and annotations of Pods: (dict "root" $ "component" COMPONENT "values" VALUES "annotations" MAP). */}}
{{- define "vmafx.podMetadata" -}}
labels:
  {{- $own := mustMergeOverwrite (deepCopy (.root.Values.commonLabels | default dict)) (deepCopy (.values.podLabels | default dict)) }}
  {{- mustMergeOverwrite $own (include "vmafx.selectorLabels" . | fromYaml) | toYaml | nindent 2 }}
{{- $annotations := mustMergeOverwrite (deepCopy (.root.Values.commonAnnotations | default dict)) (.annotations | default dict) (.values.podAnnotations | default dict) }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
