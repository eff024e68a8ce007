#!/usr/bin/env bash
# Create a TPU VM, install, run on all workers, resume after preemption, delete: see docs/tpu.md.
set -euo pipefail

usage() { sed -n '/^```$/,/^```$/p' "$(dirname "$0")/../docs/tpu.md" >&2; exit 2; }
[ $# -ge 3 ] || usage
action=$1 name=$2 zone=$3
shift 3
tpu() { local verb=$1; shift; gcloud compute tpus tpu-vm "$verb" "$name" --zone="$zone" "$@"; }
everywhere() { tpu ssh --worker=all --command="$1"; }

create() { tpu create --accelerator-type="$1" --version=tpu-ubuntu2204-base ${SPOT:+--spot}; }

install() {
  git -C "$(dirname "$0")/.." archive --format=tar.gz -o /tmp/spr_jax.tar.gz HEAD
  tpu scp /tmp/spr_jax.tar.gz "$name:" --worker=all
  everywhere 'mkdir -p spr_jax && tar -xzf spr_jax.tar.gz -C spr_jax && cd spr_jax &&
    python3 -m venv .venv && .venv/bin/pip install -q "jax[tpu]" -r requirements.txt'
}

run() { everywhere "cd spr_jax && .venv/bin/python -m spr_jax.main --coordinator=auto $*"; }

keep() {
  local type=$1
  shift
  until run "$@"; do
    if ! tpu describe --format='value(state)' 2>/dev/null | grep -q READY; then
      tpu delete --quiet || true
      until create "$type"; do sleep 60; done
      install
    fi
    sleep 10
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
