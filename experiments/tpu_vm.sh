#!/usr/bin/env bash
# Create a TPU VM, install, run on all workers, resume after preemption, delete: see docs/tpu.md.
set -euo pipefail

usage() { sed -n '/^```$/,/^```$/p' "$(dirname "$0")/../docs/tpu.md" >&2; exit 2; }
[ $# -ge 3 ] || usage
action=$1 name=$2 zone=$3
shift 3
tpu() { local verb=$1; shift; gcloud compute tpus tpu-vm "$verb" "$name" --zone="$zone" "$@"; }
everywhere() { tpu ssh --worker=all --command="$1"; }

# The software that a type of accelerator boots with; RUNTIME names another.
runtime() {
  case $1 in
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v6e-*) echo v2-alpha-tpuv6e ;;
    *) echo tpu-ubuntu2204-base ;;
  esac
}

create() {
  tpu create --accelerator-type="$1" --version="${RUNTIME:-$(runtime "$1")}" ${SPOT:+--spot}
}

# The images' own Python is 3.10, which JAX no longer supports; uv brings one along.
install() {
  git -C "$(dirname "$0")/.." archive --format=tar.gz -o /tmp/spr_jax.tar.gz HEAD
  tpu scp /tmp/spr_jax.tar.gz "$name:" --worker=all
  everywhere 'mkdir -p spr_jax && tar -xzf spr_jax.tar.gz -C spr_jax && cd spr_jax &&
    python3 -m pip install -q --user uv && uv=$HOME/.local/bin/uv &&
    $uv venv -q --allow-existing --python 3.12 .venv &&
    $uv pip install -q --python .venv/bin/python "jax[tpu]" -r requirements.txt'
  [ -z "${BUCKET:-}" ] || mount_bucket
}

# On every worker, ~/runs is then the bucket.
mount_bucket() {
  local from=https://packages.cloud.google.com/apt key=/usr/share/keyrings/cloud.google.asc
  everywhere "command -v gcsfuse >/dev/null || {
      curl -fsS $from/doc/apt-key.gpg | sudo tee $key >/dev/null &&
      echo 'deb [signed-by=$key] $from gcsfuse-jammy main' |
        sudo tee /etc/apt/sources.list.d/gcsfuse.list >/dev/null &&
      sudo apt-get -qq update && sudo apt-get -qqy install gcsfuse; } &&
    mkdir -p runs && { mountpoint -q runs || gcsfuse --implicit-dirs $BUCKET runs; }"
}

run() {
  everywhere "cd spr_jax && { .venv/bin/python -m spr_jax.main --coordinator=auto $*
    status=\$?; echo \"spr_jax ended with status \$status\"; exit \$status; }"
}

# Repeat a run that was stopped and saved (status 75), or whose machine is gone; nothing else, since
# a mistake would be repeated for ever.
keep() {
  local type=$1 said status
  shift
  until said=$(run "$@" | tee /dev/stderr); do
    if ! tpu describe --format='value(state)' 2>/dev/null | grep -q READY; then
      tpu delete --quiet || true
      until create "$type"; do sleep "${PAUSE:-60}"; done
      install
      continue
    fi
    status=$(sed -n 's/^spr_jax ended with status //p' <<<"$said" | grep -vx '0\|75' | head -1) || true
    [ -z "$status" ] || exit "$status"
    sleep "${PAUSE:-10}"
  done
}

case $action in
  create) create "$1" ;;
  install) install ;;
  run) run "$@" ;;
  keep) keep "$@" ;;
  delete) tpu delete --quiet ;;
  *) usage ;;
esac
