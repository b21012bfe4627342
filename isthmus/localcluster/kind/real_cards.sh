#!/bin/bash
# Run in a node whose container was started by NVIDIA's runtime with some of this machine's cards:
# real_cards.sh TOTAL INDEX... (how many cards the machine has, which of them are this node's).
# A node is privileged and so sees every card's device file, whatever it was started with. NVML counts what it can open, so
# the others' files go, and the driver is told not to make them again. The steps are those of NVIDIA/nvkind
# (pkg/nvkind/node.go, read 2026-11-30).
set -eu
total=$1
shift

if ! command -v nvidia-container-runtime > /dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  apt-get install -qy --no-install-recommends ca-certificates curl
  mkdir -p /etc/apt/keyrings
  curl -fsSL https://nvidia.github.io/libnvidia-container/gpgkey -o /etc/apt/keyrings/nvidia.asc
  source=https://nvidia.github.io/libnvidia-container/stable/deb/$(dpkg --print-architecture)
  echo "deb [signed-by=/etc/apt/keyrings/nvidia.asc] $source /" > /etc/apt/sources.list.d/nvidia.list
  apt-get update -q
  apt-get install -qy --no-install-recommends nvidia-container-toolkit
fi

params=/proc/driver/nvidia/params
if grep -qx 'ModifyDeviceFiles: 1' "$params" 2> /dev/null || ! [ -e "$params" ]; then
  # A toolkit before 1.19 hides the whole folder behind an empty one.
  umount -R /proc/driver/nvidia || true
  sed 's/^ModifyDeviceFiles: 1$/ModifyDeviceFiles: 0/' "$params" > /run/nvidia-params
  mount --bind /run/nvidia-params "$params"
fi

for index in $(seq 0 $((total - 1))); do
  case " $* " in *" $index "*) continue ;; esac
  while umount "/dev/nvidia$index" 2> /dev/null; do :; done
  rm -f "/dev/nvidia$index"
done
