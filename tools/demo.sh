#!/usr/bin/env bash
# What vmafx does: encodes scored on this machine, then the four kinds on a real API server. KEEP=1 leaves that running.
set -euo pipefail
cd "$(dirname "$0")/.."

name=demo
work=$(mktemp -d)
finish() {
  if [ -n "${starting:-}" ]; then wait "$starting" || true; fi
  rm -rf "$work"
  if [ -z "${up:-}" ]; then return; fi
  if [ -n "${KEEP:-}" ]; then
    printf '\nThe cluster runs on. Next:\n'
    printf '  eval "$(vmafx dev env --name %s)"    (vmafx is in .venv/bin)\n' "$name"
    printf '  kubectl explain vmjob.spec\n  vmafx dev down --name %s\n' "$name"
  else
    vmafx dev down --name "$name" > /dev/null
  fi
}
trap finish EXIT
show() { printf '\n$ %s\n' "$*"; "$@"; }

vmafx dev fetch  # the first time this takes minutes, and shows what it does
vmafx dev up --name "$name" > "$work/up.log" 2>&1 &
starting=$! up=1

ffmpeg=$(python -c 'import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_exe())')
make_clip() { "$ffmpeg" -hide_banner -loglevel error -nostdin "$@"; }
printf 'making a reference clip and two encodes of it\n'
make_clip -f lavfi -i 'testsrc2=s=480x270:r=25:d=2,noise=alls=10:allf=t' -c:v libx264 -qp 0 -preset ultrafast "$work/reference.mp4"
make_clip -i "$work/reference.mp4" -c:v libx264 -crf 24 "$work/h264-crf24.mp4"
make_clip -i "$work/reference.mp4" -c:v libx265 -crf 38 -x265-params log-level=none "$work/hevc-crf38.mp4"
(cd "$work" && show vmafx score reference.mp4 h264-crf24.mp4 hevc-crf38.mp4 --feature psnr --no-cache --report report.html)
mkdir -p dist && cp "$work/report.html" dist/demo-report.html
printf 'the report, with the worst frames side by side: dist/demo-report.html\n\n'

wait "$starting" || { cat "$work/up.log" >&2; exit 1; }
cat "$work/up.log"
eval "$(vmafx dev env --name "$name")"
show kubectl wait --for=condition=Established --timeout=30s crd --all
show kubectl apply -f examples/
show kubectl get vmafx
show kubectl get vmjob --field-selector status.phase=Pending -o wide
