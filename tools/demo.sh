#!/usr/bin/env bash
# The four kinds on a real API server, with the examples applied. KEEP=1 leaves the cluster running.
set -euo pipefail
cd "$(dirname "$0")/.."

name=demo
finish() {
  if [ -n "${KEEP:-}" ]; then
    printf '\nThe cluster runs on. Next:\n'
    printf '  eval "$(vmafx dev env --name %s)"    (vmafx is in .venv/bin)\n' "$name"
    printf '  kubectl explain vmjob.spec\n  vmafx dev down --name %s\n' "$name"
  else
    vmafx dev down --name "$name" > /dev/null
  fi
}
show() { printf '\n$ %s\n' "$*"; "$@"; }

vmafx dev up --name "$name"
trap finish EXIT
eval "$(vmafx dev env --name "$name")"
show kubectl wait --for=condition=Established --timeout=30s crd --all
show kubectl apply -f examples/
show kubectl get vmafx
show kubectl get vmjob --field-selector status.phase=Pending -o wide
