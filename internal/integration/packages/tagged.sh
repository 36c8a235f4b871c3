#!/usr/bin/env bash
# Installs the last commit as users will install a release: `go install …/cmd/bulkscan@TAG`. A copy of this repository has the tag, and stands for
# that of the forge. Go packs the module from it, so that what a module may not have (a replaced library, two names that differ in case
# only) fails here. Its libraries come out of the module cache of this machine, or from where Go gets them else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

tag=v0.1.0 path=github.com/bulkscan/bulkscan work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '[safe]\n\tdirectory = *\n[url "file://%s/forge"]\n\tinsteadOf = https://%s\n' "$work" "$path" >"$work/git"
export GIT_CONFIG_GLOBAL="$work/git"
git clone --quiet --bare --no-local . "$work/forge"
git -C "$work/forge" tag --force "$tag" HEAD >/dev/null

cache=$(go env GOMODCACHE)/cache/download proxy=$(go env GOPROXY)
export GOPRIVATE="$path" GOSUMDB=off GOPROXY="file://$cache,$proxy" GOMODCACHE="$work/modules" GOBIN="$work/bin" CGO_ENABLED=0
export GOFLAGS="-trimpath -modcacherw"
cd "$work" # not in a module
go install "$path/cmd/bulkscan@$tag"
said=$("$work/bin/bulkscan" version)
[[ $said == "bulkscan $tag "* ]] || { echo "it says: $said"; exit 1; }
"$work/bin/bulkscan" demo -o "$work/demo" --origins 300 >"$work/demo.txt" 2>&1 || { cat "$work/demo.txt"; exit 1; }
"$work/bin/bulkscan" verify "$work/demo"
echo "tagged: go install $path/cmd/bulkscan@$tag makes $said"
