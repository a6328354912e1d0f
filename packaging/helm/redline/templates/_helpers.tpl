{{- define "redline.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "redline.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "redline.labels" -}}
{{ include "redline.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "redline.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "redline.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{- define "redline.authSecret" -}}
{{ default (include "redline.fullname" .) .Values.auth.existingSecret }}
{{- end -}}

{{- define "redline.hasPassword" -}}
{{- if and (eq .Values.mode "server") .Values.auth.enabled }}yes{{ end -}}
{{- end -}}

{{/* How this pod is asked whether it serves. */}}
{{- define "redline.ping" -}}
- /usr/bin/redline
- ping
- --port
- "6379"
{{- if .Values.tls.enabled }}
# The name in the certificate is that of the service.
- --tls
- --insecure
{{- if .Values.tls.clientCertificates }}
- --cert
- /etc/redline-tls/tls.crt
- --key
- /etc/redline-tls/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{/* The pod of every kind. Called with the chart's values (root), the part of it (part) and the program's arguments (args). */}}
{{- define "redline.pod" -}}
metadata:
  annotations:
    checksum/configuration: {{ include (print .root.Template.BasePath "/configuration.yaml") .root | sha256sum }}
    {{- with .root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "redline.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .part }}
    {{- with .root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "redline.serviceAccount" .root }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 999
    runAsGroup: 999
    fsGroup: 999
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: redline
      image: "{{ .root.Values.image.repository }}:{{ default .root.Chart.AppVersion .root.Values.image.tag }}"
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args:
        {{- .args | trim | nindent 8 }}
      {{- if include "redline.hasPassword" .root }}
      env:
        - name: REDISCLI_AUTH
          valueFrom:
            secretKeyRef:
              name: {{ include "redline.authSecret" .root }}
              key: {{ .root.Values.auth.existingSecretPasswordKey }}
      {{- end }}
      ports:
        - name: redis
          containerPort: 6379
        {{- if .root.Values.metrics.enabled }}
        - name: metrics
          containerPort: {{ .root.Values.metrics.port }}
        {{- end }}
      startupProbe:
        tcpSocket:
          port: redis
        periodSeconds: 1
        failureThreshold: 60
      livenessProbe:
        {{- if .root.Values.metrics.enabled }}
        httpGet:
          path: /livez
          port: metrics
        {{- else }}
        tcpSocket:
          port: redis
        {{- end }}
        periodSeconds: 10
        timeoutSeconds: 4
        failureThreshold: 6
      readinessProbe:
        {{- if .root.Values.metrics.enabled }}
        httpGet:
          path: /readyz{{ if eq .part "replica" }}?replica{{ end }}
          port: metrics
        {{- else if eq .root.Values.mode "proxy" }}
        # Its users, and so the answer to PING, are in its file.
        tcpSocket:
          port: redis
        {{- else }}
        exec:
          command:
            {{- include "redline.ping" .root | nindent 12 }}
        {{- end }}
        periodSeconds: 5
        timeoutSeconds: 4
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      {{- with .root.Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: configuration
          mountPath: /etc/redline
          readOnly: true
        - name: data
          mountPath: /data
        {{- if .root.Values.tls.enabled }}
        - name: tls
          mountPath: /etc/redline-tls
          readOnly: true
        {{- end }}
  volumes:
    - name: configuration
      {{- if eq .root.Values.mode "proxy" }}
      secret:
        secretName: {{ default (include "redline.fullname" .root) .root.Values.proxy.existingSecret }}
      {{- else }}
      configMap:
        name: {{ include "redline.fullname" .root }}
      {{- end }}
    {{- if .root.Values.tls.enabled }}
    - name: tls
      secret:
        secretName: {{ .root.Values.tls.existingSecret }}
    {{- end }}
    {{- if or (eq .root.Values.mode "proxy") (not .root.Values.persistence.enabled) }}
    - name: data
      emptyDir: {}
    {{- end }}
  {{- with .root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
