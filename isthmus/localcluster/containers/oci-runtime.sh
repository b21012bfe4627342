#!/bin/sh
# What containerd calls instead of runc. It changes the container's configuration where this node needs it, then becomes
# runc. Two changes:
#   - the driver root, as nvidia-container-runtime does it: a container whose environment has NVIDIA_VISIBLE_DEVICES
#     gets the driver's files mounted (see isthmus/localcluster/driver), and /proc/driver as the driver would fill it. runc
#     mounts nothing into /proc, so a hook does that, in the container's own mount namespace. Only who sees all cards may
#     set their compute modes; devices of claims (isthmus/localcluster/agent) come in variables of their own, and together
#     are what the container sees;
#   - on a host that itself lacks CAP_SYS_RESOURCE, what only that capability allows is left out: the capability, a
#     negative OOM score, limits above the host's own.
set -eu
driver='@DRIVER@'
drop='@DROP@'

bundle='' process='' previous=''
for argument in "$@"; do
  case "$previous" in
    --bundle | -b) bundle=$argument ;;
    --process | -p) process=$argument ;;
  esac
  case "$argument" in
    --bundle=*) bundle=${argument#*=} ;;
    --process=*) process=${argument#*=} ;;
  esac
  previous=$argument
done

# jq functions: `lessen` takes a process, `cards` a whole configuration.
program='
def lessen:
  (.capabilities // {}) |= with_entries(.value -= ["CAP_SYS_RESOURCE"])
  | if (.oomScoreAdj // 0) < 0 then .oomScoreAdj = 0 else . end
  | del(.rlimits);
def claimed: [(.process.env // [])[] | select(startswith("ISTHMUS_CLAIMED_")) | sub("^[^=]*="; "")]
  | (map(select(. != "void")) | join(",")) as $cards | if $cards == "" then .[0] // "" else $cards end;
def see_claimed: claimed as $claimed | if $claimed == "" then . else .process.env |=
  [.[] | select(startswith("NVIDIA_VISIBLE_DEVICES=") | not)] + ["NVIDIA_VISIBLE_DEVICES=" + $claimed] end;
def visible:
  [(.process.env // [])[] | select(startswith("NVIDIA_VISIBLE_DEVICES=")) | ltrimstr("NVIDIA_VISIBLE_DEVICES=")]
  | last // "";
def file($from; $to): {type: "bind", source: $from, destination: $to, options: ["bind", "ro", "nosuid", "nodev"]};
def modes: if visible == "all" then .mounts += [file("\($driver)/modes"; "/run/isthmus/driver/modes")
  | .options = ["bind", "rw", "nosuid", "nodev"]] else . end;
def root: (.root.path // "rootfs") | if startswith("/") then . else "\($bundle)/\(.)" end;
def proc: .hooks.createContainer += [
  {path: "/bin/mount", args: ["mount", "--bind", "\($driver)/proc", "\(root)/proc/driver"]}];
def cards: see_claimed | if visible | IN("", "void", "none") | not then .mounts += [$files[] | file(.from; .to)] | modes | proc else . end;
'

change() { # FILE FILTER: edit in place, so that the file keeps its owner and mode
  jq --argjson files "$files" --arg driver "$driver" --arg bundle "$bundle" "$program $2" "$1" > "$1.new"
  cat "$1.new" > "$1"
  rm -f "$1.new"
}

files='[]'
filter=''
if [ -n "$bundle" ] && [ -f "$bundle/config.json" ]; then
  if [ -f "$driver/cards" ] && grep -q -e NVIDIA_VISIBLE_DEVICES -e ISTHMUS_CLAIMED_ "$bundle/config.json"; then
    files=$(jq -n --arg driver "$driver" '[
      {from: $driver, to: "/run/isthmus/driver"},
      {from: "\($driver)/libnvidia-ml.so.1", to: "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"},
      {from: "\($driver)/nvidia-smi", to: "/usr/bin/nvidia-smi"},
      {from: "\($driver)/nvidia-cuda-mps-control", to: "/usr/bin/nvidia-cuda-mps-control"}
    ]')
    filter='cards'
  fi
  if [ "$drop" = yes ]; then
    filter="${filter:+$filter | }.process |= lessen"
  fi
  if [ -n "$filter" ]; then change "$bundle/config.json" "$filter"; fi
fi
if [ "$drop" = yes ] && [ -n "$process" ] && [ -f "$process" ]; then
  change "$process" lessen
fi
exec runc "$@"
